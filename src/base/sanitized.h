/*
 * RCP_SANITIZED: 1 in a build with the address sanitizer, whose leak check has to look into its own process.
 * RCP_SANITIZED_THREAD: 1 in one with the thread sanitizer, whose shadow memory counts as the process's.
 */
#ifndef RCP_BASE_SANITIZED_H
#define RCP_BASE_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__)
#define RCP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RCP_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define RCP_SANITIZED_THREAD 1
#endif
#endif
#ifndef RCP_SANITIZED
#define RCP_SANITIZED 0
#endif
#if defined(__SANITIZE_THREAD__)
#define RCP_SANITIZED_THREAD 1
#elif !defined(RCP_SANITIZED_THREAD)
#define RCP_SANITIZED_THREAD 0
#endif

#endif
