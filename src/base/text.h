/*
 * Text for people: sizes, rates, names. Pure functions, any thread.
 */
#ifndef RCP_BASE_TEXT_H
#define RCP_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "64K", "1.5G", "4096" -> bytes. K M G T are powers of 1024. Returns 0, or -1 for anything else
 * (empty, negative, trailing text, over INT64_MAX). */
int rcp_size_parse(const char *text, uint64_t *bytes);

/* Bytes as at most 8 columns: "1023 B", "1.5 GiB". Returns buf. */
char *rcp_size_format(uint64_t bytes, char *buf, size_t size);

/*
 * A name made safe for a terminal or a log line: control bytes, backslash and invalid UTF-8 become
 * \n, \t, \\ or \xHH. Cut, never overrun; dst needs 4 * len + 1 bytes for the whole. Returns dst.
 */
char *rcp_name_escape(char *dst, size_t size, const char *name, size_t len);

/* The same name as the inside of a JSON string (invalid UTF-8 bytes become U+00HH). Returns dst;
 * 6 * len + 1 bytes for the whole. */
char *rcp_json_escape(char *dst, size_t size, const char *name, size_t len);

/* Length of the valid UTF-8 sequence at s (1 to 4), 0 if invalid. */
size_t rcp_utf8_len(const unsigned char *s, size_t len);

#endif
