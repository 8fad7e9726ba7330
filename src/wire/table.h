/*
 * THE table of the protocol: every message, record and field, once. The codec, the structs and the
 * test that holds man/rcp-protocol.7 against the code are made from it. Included by msg.h only.
 *
 * Field types on the wire, all big-endian:
 *   U8 U16 U32 U64   unsigned integers; times are U64 seconds in two's complement
 *   K16 K32          16 or 32 bytes as they are
 *   STR              U16 length, then bytes (any but NUL; at most 4096)
 *   BLOB             U32 length, then bytes; where a record is named, records one after another
 */
#ifndef RCP_WIRE_TABLE_H
#define RCP_WIRE_TABLE_H

/* M(NAME, name, number, who may send it, phase in which it is legal)
 * who: I initiator, R responder, IR either, S source, K sink, SK either once roles are set.
 * phase: BOOT over the ssh pipe (or daemon connection), TALK negotiation, COPY streaming, ANY. */
#define RCP_MESSAGES(M)                                                                            \
	M(HELLO, hello, 1, IR, BOOT)                                                               \
	M(START, start, 2, I, BOOT)                                                                \
	M(NAMES, names, 35, I, BOOT)                                                               \
	M(READY, ready, 3, R, BOOT)                                                                \
	M(SWITCH, switch, 4, I, BOOT)                                                              \
	M(MODULE, module, 36, I, BOOT)                                                             \
	M(MODULES, modules, 37, R, BOOT)                                                           \
	M(CAPS, caps, 5, IR, TALK)                                                                 \
	M(LINK_TRY, link_try, 6, I, TALK)                                                          \
	M(LINK_OOB, link_oob, 7, IR, TALK)                                                         \
	M(LINK_GO, link_go, 8, R, TALK)                                                            \
	M(LINK_RING, link_ring, 9, K, TALK)                                                        \
	M(LINK_FAIL, link_fail, 10, IR, TALK)                                                      \
	M(LINK_USE, link_use, 11, I, TALK)                                                         \
	M(ENTRIES, entries, 16, S, COPY)                                                           \
	M(ANSWERS, answers, 17, K, COPY)                                                           \
	M(AGAIN, again, 18, K, COPY)                                                               \
	M(ENTRY_END, entry_end, 19, S, COPY)                                                       \
	M(RESULTS, results, 20, K, COPY)                                                           \
	M(FAULT, fault, 21, S, COPY)                                                               \
	M(WALK_END, walk_end, 22, S, COPY)                                                         \
	M(POSTED, posted, 25, S, COPY)                                                             \
	M(VERDICT, verdict, 23, K, COPY)                                                           \
	M(BYE, bye, 24, S, COPY)                                                                   \
	M(PING, ping, 32, IR, ANY)                                                                 \
	M(ABORT, abort, 33, IR, ANY)                                                               \
	M(NOTE, note, 34, R, ANY)                                                                  \
	M(CHUNK, chunk, 48, S, COPY)                                                               \
	M(CREDIT, credit, 49, K, COPY)

#define RCP_HELLO_FIELDS(F, S)                                                                        \
	F(S, U32, magic)                                                                              \
	F(S, U16, version_min)                                                                        \
	F(S, U16, version_max)                                                                        \
	F(S, U64, features)                                                                           \
	F(S, STR, software)

#define RCP_START_FIELDS(F, S)                                                                     \
	F(S, K32, secret)                                                                          \
	F(S, K16, session)                                                                         \
	F(S, U8, role)                                                                             \
	F(S, U8, transports)                                                                       \
	F(S, U8, encrypt)                                                                          \
	F(S, U8, connect)                                                                          \
	F(S, U8, source_engine)                                                                    \
	F(S, U8, family)                                                                           \
	F(S, U16, tos)                                                                             \
	F(S, U16, sl)                                                                              \
	F(S, U32, pkey)                                                                            \
	F(S, U16, streams)                                                                         \
	F(S, U32, chunk_bytes)                                                                     \
	F(S, U32, slots)                                                                           \
	F(S, U32, bundle_bytes)                                                                    \
	F(S, U64, flags)                                                                           \
	F(S, U64, limit_bytes_per_second)                                                          \
	F(S, STR, target)                                                                          \
	F(S, STR, source)                                                                          \
	F(S, BLOB, excludes)

#define RCP_NAMES_FIELDS(F, S)                                                                     \
	F(S, U8, last)                                                                             \
	F(S, BLOB, paths)

#define RCP_READY_FIELDS(F, S)                                                                        \
	F(S, U16, port)                                                                               \
	F(S, BLOB, addrs)

#define RCP_SWITCH_FIELDS(F, S) F(S, U8, to)

#define RCP_MODULE_FIELDS(F, S) F(S, STR, name)

#define RCP_MODULES_FIELDS(F, S) F(S, BLOB, modules)

#define RCP_CAPS_FIELDS(F, S)                                                                         \
	F(S, U64, features)                                                                           \
	F(S, U32, slots)                                                                              \
	F(S, U32, chunk_bytes)                                                                        \
	F(S, U16, cpus)                                                                               \
	F(S, U16, streams)                                                                            \
	F(S, STR, no_rdma)                                                                            \
	F(S, STR, no_rdma_fix)                                                                        \
	F(S, BLOB, ports)

#define RCP_LINK_TRY_FIELDS(F, S)                                                                     \
	F(S, U16, link)                                                                               \
	F(S, U8, kind)                                                                                \
	F(S, U8, streams)                                                                             \
	F(S, U16, initiator_port)                                                                     \
	F(S, U16, responder_port)                                                                     \
	F(S, U32, slots)                                                                              \
	F(S, U32, chunk_bytes)

#define RCP_LINK_OOB_FIELDS(F, S)                                                                     \
	F(S, U16, link)                                                                               \
	F(S, U32, qpn)                                                                                \
	F(S, U32, psn)                                                                                \
	F(S, U16, lid)                                                                                \
	F(S, U8, mtu)                                                                                 \
	F(S, U8, gid_type)                                                                            \
	F(S, K16, gid)

#define RCP_LINK_GO_FIELDS(F, S) F(S, U16, link)

#define RCP_LINK_RING_FIELDS(F, S)                                                                    \
	F(S, U16, link)                                                                               \
	F(S, U32, rkey)                                                                               \
	F(S, U64, addr)                                                                               \
	F(S, U32, slots)                                                                              \
	F(S, U32, slot_bytes)                                                                         \
	F(S, U32, chunk_bytes)                                                                        \
	F(S, U32, generation)

#define RCP_LINK_FAIL_FIELDS(F, S)                                                                    \
	F(S, U16, link)                                                                               \
	F(S, U32, sys_errno)                                                                          \
	F(S, STR, call)                                                                               \
	F(S, STR, object)                                                                             \
	F(S, STR, text)                                                                               \
	F(S, STR, fix)

#define RCP_LINK_USE_FIELDS(F, S)                                                                     \
	F(S, U16, link)                                                                               \
	F(S, U8, kind)                                                                                \
	F(S, U32, slots)                                                                              \
	F(S, U32, chunk_bytes)                                                                        \
	F(S, U32, generation)                                                                         \
	F(S, STR, why)

#define RCP_ENTRIES_FIELDS(F, S)                                                                      \
	F(S, U32, first)                                                                              \
	F(S, U32, count)                                                                              \
	F(S, BLOB, entries)

#define RCP_ANSWERS_FIELDS(F, S) F(S, BLOB, answers)

#define RCP_AGAIN_FIELDS(F, S)                                                                        \
	F(S, U32, entry)                                                                              \
	F(S, U32, attempt)                                                                            \
	F(S, U64, offset)                                                                             \
	F(S, U32, length)

#define RCP_ENTRY_END_FIELDS(F, S)                                                                 \
	F(S, U32, entry)                                                                           \
	F(S, U64, data_bytes)

#define RCP_RESULTS_FIELDS(F, S) F(S, BLOB, results)

#define RCP_FAULT_FIELDS(F, S)                                                                        \
	F(S, U32, entry)                                                                              \
	F(S, U8, severity)                                                                            \
	F(S, U8, code)                                                                                \
	F(S, U32, sys_errno)                                                                          \
	F(S, STR, call)                                                                               \
	F(S, STR, object)                                                                             \
	F(S, STR, text)                                                                               \
	F(S, STR, fix)

#define RCP_WALK_END_FIELDS(F, S)                                                                     \
	F(S, U32, entries)                                                                            \
	F(S, U64, files)                                                                              \
	F(S, U64, bytes)

#define RCP_POSTED_FIELDS(F, S)                                                                    \
	F(S, U32, generation)                                                                      \
	F(S, U64, chunks)                                                                          \
	F(S, U64, answers)                                                                         \
	F(S, U64, agains)

#define RCP_VERDICT_FIELDS(F, S)                                                                      \
	F(S, U8, code)                                                                                \
	F(S, U64, files)                                                                              \
	F(S, U64, bytes)                                                                              \
	F(S, U64, failed)                                                                             \
	F(S, U64, skipped)                                                                            \
	F(S, U64, resumed_bytes)                                                                      \
	F(S, U64, resent_chunks)                                                                      \
	F(S, U64, wait_network_ns)                                                                    \
	F(S, U64, wait_sink_ns)                                                                       \
	F(S, U32, crc)                                                                                \
	F(S, U8, crc_known)

#define RCP_BYE_FIELDS(F, S)                                                                          \
	F(S, U64, zero_copy_bytes)                                                                    \
	F(S, U64, staged_bytes)                                                                       \
	F(S, U64, wait_source_ns)                                                                     \
	F(S, U64, wait_credit_ns)

#define RCP_PING_FIELDS(F, S) F(S, U64, token)

#define RCP_ABORT_FIELDS(F, S)                                                                        \
	F(S, U8, code)                                                                                \
	F(S, U32, sys_errno)                                                                          \
	F(S, STR, call)                                                                               \
	F(S, STR, object)                                                                             \
	F(S, STR, text)                                                                               \
	F(S, STR, fix)

#define RCP_NOTE_FIELDS(F, S)                                                                         \
	F(S, U8, level)                                                                               \
	F(S, STR, text)

#define RCP_CHUNK_FIELDS(F, S)                                                                        \
	F(S, U32, slot)                                                                               \
	F(S, BLOB, bytes)

#define RCP_CREDIT_FIELDS(F, S) F(S, BLOB, slots)

/* R(NAME, name): records inside BLOB fields. */
#define RCP_RECORDS(R)                                                                             \
	R(PATH, path)                                                                              \
	R(ADDR, addr)                                                                              \
	R(PORT, port)                                                                              \
	R(GID, gid)                                                                                \
	R(ENTRY, entry)                                                                            \
	R(XATTR, xattr)                                                                            \
	R(ANSWER, answer)                                                                          \
	R(RANGE, range)                                                                            \
	R(RESULT, result)                                                                          \
	R(BUNDLED, bundled)                                                                        \
	R(SLOT, slot)                                                                              \
	R(LISTING, listing)

#define RCP_REC_PATH_FIELDS(F, S) F(S, STR, path)

#define RCP_REC_ADDR_FIELDS(F, S)                                                                     \
	F(S, U8, family)                                                                              \
	F(S, K16, addr)                                                                               \
	F(S, STR, netdev)

#define RCP_REC_PORT_FIELDS(F, S)                                                                     \
	F(S, U16, index)                                                                              \
	F(S, STR, device)                                                                             \
	F(S, U8, number)                                                                              \
	F(S, U8, link_layer)                                                                          \
	F(S, U8, transport)                                                                           \
	F(S, U8, mtu)                                                                                 \
	F(S, U32, rate_mbps)                                                                          \
	F(S, U16, lid)                                                                                \
	F(S, U32, max_msg_bytes)                                                                      \
	F(S, U8, imm)                                                                                 \
	F(S, U16, numa)                                                                               \
	F(S, U16, cm_port)                                                                            \
	F(S, STR, netdev)                                                                             \
	F(S, BLOB, gids)                                                                              \
	F(S, BLOB, addrs)

#define RCP_REC_GID_FIELDS(F, S)                                                                      \
	F(S, U8, type)                                                                                \
	F(S, U16, index)                                                                              \
	F(S, K16, gid)

#define RCP_REC_ENTRY_FIELDS(F, S)                                                                    \
	F(S, U8, type)                                                                                \
	F(S, U8, flags)                                                                               \
	F(S, U32, mode)                                                                               \
	F(S, U64, size)                                                                               \
	F(S, U64, mtime_s)                                                                            \
	F(S, U32, mtime_ns)                                                                           \
	F(S, U64, ctime)                                                                              \
	F(S, U64, atime_s)                                                                            \
	F(S, U32, atime_ns)                                                                           \
	F(S, U32, uid)                                                                                \
	F(S, U32, gid)                                                                                \
	F(S, U64, rdev)                                                                               \
	F(S, U64, dev)                                                                                \
	F(S, U64, ino)                                                                                \
	F(S, STR, path)                                                                               \
	F(S, STR, link)                                                                               \
	F(S, STR, user)                                                                               \
	F(S, STR, group)                                                                              \
	F(S, BLOB, xattrs)

#define RCP_REC_XATTR_FIELDS(F, S)                                                                    \
	F(S, STR, name)                                                                               \
	F(S, BLOB, value)

#define RCP_REC_ANSWER_FIELDS(F, S)                                                                \
	F(S, U32, first)                                                                           \
	F(S, U32, count)                                                                           \
	F(S, BLOB, have)

#define RCP_REC_RANGE_FIELDS(F, S)                                                                    \
	F(S, U64, offset)                                                                             \
	F(S, U64, length)

#define RCP_REC_RESULT_FIELDS(F, S)                                                                   \
	F(S, U32, first)                                                                              \
	F(S, U32, count)                                                                              \
	F(S, U8, status)                                                                              \
	F(S, U8, code)                                                                                \
	F(S, U32, sys_errno)                                                                          \
	F(S, STR, call)                                                                               \
	F(S, STR, object)                                                                             \
	F(S, STR, text)                                                                               \
	F(S, STR, fix)

#define RCP_REC_BUNDLED_FIELDS(F, S)                                                                  \
	F(S, U32, entry)                                                                              \
	F(S, U32, length)                                                                             \
	F(S, U32, crc)

#define RCP_REC_SLOT_FIELDS(F, S) F(S, U32, slot)

#define RCP_REC_LISTING_FIELDS(F, S)                                                               \
	F(S, STR, name)                                                                            \
	F(S, U8, writable)                                                                         \
	F(S, STR, comment)

#endif
