/*
 * Sockets on which calls move less than they could: the linker puts these in the place of send,
 * sendmsg, sendfile, recv and recvmsg (-Wl,--wrap). On marked descriptors a call is cut short at a
 * random byte, or says EINTR or EAGAIN; on all others it is the real one.
 */
#ifndef RCP_TESTS_LINK_TORN_H
#define RCP_TESTS_LINK_TORN_H

void torn_mark(int fd);
/* None is marked any more. */
void torn_clear(void);

#endif
