/*
 * The seam under a whole rcp: what it calls outside itself goes through __wrap_NAME (the linker's
 * --wrap), is counted by call and place, and one of them can be made to fail. Only calls from rcp's
 * own objects come here, not those that libc makes itself. Any thread.
 *
 * RCP_CALLS holds words, separated by blanks; it is taken out of the environment at the start:
 *   count=FILE      at the end: "count NAME PLACE HOW-OFTEN", a line for each place
 *   report=FILE     "hit NAME PLACE N", "fd N NAME" (left open), "close N" (was not open)
 *   fail=NAME@PLACE:N[+]:HOW    the Nth call there fails; with '+' all after it, too. See `wrapped`.
 *
 * A place is the call's return address, from the program's beginning on; "-": any.
 */
#ifndef TESTS_CALLS_SEAM_H
#define TESTS_CALLS_SEAM_H

#include <stddef.h>
#include <stdint.h>

#define SEAM_SHORT (-1)
#define SEAM_FAIL  (-2)

/* How this call is to fail: an errno, SEAM_SHORT, SEAM_FAIL; 0: not at all. */
int seam_how(const char *name, uintptr_t place);
uintptr_t seam_place(const void *from);
/* For the report. */
void seam_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define SEAM_HOW(name) seam_how(name, seam_place(__builtin_return_address(0)))

#endif
