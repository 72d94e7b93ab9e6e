/* What the tests of the C interface check with. */
#ifndef REDBLUE_TESTS_CHECK_H
#define REDBLUE_TESTS_CHECK_H

#include <redblue.h>
#include <stdio.h>
#include <string.h>

extern int failures;
#define CHECK(what)                                                                         \
  do {                                                                                      \
    if (!(what)) {                                                                          \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, redblue_last_error()); \
      ++failures;                                                                           \
    }                                                                                       \
  } while (0)
/* A call that fails with this status and a message that contains this text. */
#define REFUSED(call, status, text)                                                                   \
  do {                                                                                                \
    const redblue_status s = (call);                                                                  \
    if (s != (status) || strstr(redblue_last_error(), (text)) == NULL) {                              \
      fprintf(stderr, "%s:%d: %s: %s, \"%s\"\n", __FILE__, __LINE__, #call, redblue_status_string(s), \
              redblue_last_error());                                                                  \
      ++failures;                                                                                     \
    }                                                                                                 \
  } while (0)

void test_parts(void);  /* parts_test.c */
void test_second(void); /* second_test.c */

#endif
