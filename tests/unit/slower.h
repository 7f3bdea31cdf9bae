/* SPDX-License-Identifier: Apache-2.0 */
/* slower.h - by how much random tests are shortened where each round takes many times as long.
 *
 * A sanitizer sees in a few rounds what it would see in many: where they touch memory, not what they compute. */
#ifndef SLOWER_H
#define SLOWER_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
enum { SLOWER = 5 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 2 };
#else
enum { SLOWER = 1 };
#endif

#endif
