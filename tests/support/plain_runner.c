/* SPDX-License-Identifier: Apache-2.0 */
/* plain_runner.c - runs the tests of a Criterion program without Criterion's runner, for ThreadSanitizer builds.
 *
 * Criterion starts its tests in processes whose memory it copies to fixed addresses; ThreadSanitizer keeps those for
 * itself.  This file takes the place of the parts of libcriterion that a test calls: main, the steps around a test, and
 * what a failed assertion does.  Each test is one plain fork.  Parameterized tests and the init, fini, signal,
 * exit_code, timeout and disabled settings work; theories do not.  Prints TAP.  An argument picks tests by substring.
 */
#include <criterion/criterion.h>
#include <criterion/event.h>
#include <criterion/parameterized.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak)), *__stop_cr_sts[] __attribute__((weak));

enum { SKIPPED = 77, DEFAULT_TIMEOUT = 110 };

/* Of the process that runs a test. */
static const struct criterion_test *test;
static const struct criterion_suite *suite;
static void *param;

static const struct criterion_suite *suite_of(const struct criterion_test *t)
{
    for (struct criterion_suite **s = __start_cr_sts; s && s < __stop_cr_sts; s++)
        if (!strcmp((*s)->name, t->category))
            return *s;
    return NULL;
}

/* ---- what tests call ---- */

void criterion_internal_test_setup(void)
{
    if (suite && suite->data->init)
        suite->data->init();
    if (test->data->init)
        test->data->init();
}

void criterion_internal_test_main(void (*fn)(void))
{
    if (test->data->kind_ == CR_TEST_PARAMETERIZED)
        ((void (*)(void *))fn)(param);
    else
        fn();
}

void criterion_internal_test_teardown(void)
{
    if (test->data->fini)
        test->data->fini();
    if (suite && suite->data->fini)
        suite->data->fini();
}

/* Called for failed assertions only. */
void criterion_send_assert(struct criterion_assert_stats *stats)
{
    printf("# %s:%u: %s\n", stats->file, stats->line, stats->message ? stats->message : "assertion failed");
    fflush(stdout);
    _exit(1);
}

void criterion_abort_test(void) { _exit(1); }

void criterion_skip_test(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("# skipped: ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    _exit(SKIPPED);
}

/* ---- the runner ---- */

static void child(const struct criterion_test *t, void *with)
{
    const double limit = t->data->timeout;
    test = t;
    suite = suite_of(t);
    param = with;
    alarm(limit > 0 ? (unsigned)limit + 1 : DEFAULT_TIMEOUT);
    t->test();
    fflush(NULL);
    exit(0); /* not _exit: the sanitizer reports and sets its exit code on the way out */
}

/* 0: passed, SKIPPED, or anything else: failed. */
static int run(const struct criterion_test *t, void *with)
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid)
        child(t, with);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror("# fork");
        return 1;
    }
    if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == t->data->signal)
            return 0;
        printf("# ended by signal %d\n", WTERMSIG(status));
        return 1;
    }
    if (WEXITSTATUS(status) == SKIPPED)
        return SKIPPED;
    return t->data->signal || WEXITSTATUS(status) != t->data->exit_code;
}

static int run_all_params(const struct criterion_test *t)
{
    if (t->data->kind_ == CR_TEST_NORMAL)
        return run(t, NULL);
    if (t->data->kind_ != CR_TEST_PARAMETERIZED)
        return SKIPPED;
    struct criterion_test_params p = t->data->param_();
    int worst = 0;
    for (size_t i = 0; i < p.length && !worst; i++)
        worst = run(t, (char *)p.params + i * p.size);
    if (p.cleanup)
        p.cleanup(&p);
    return worst;
}

static int disabled(const struct criterion_test *t)
{
    const struct criterion_suite *s = suite_of(t);
    return t->data->disabled || (s && s->data->disabled);
}

int main(int argc, char **argv)
{
    int number = 0, failed = 0;
    printf("1..%d\n", (int)(__stop_cr_tst - __start_cr_tst));
    for (struct criterion_test **t = __start_cr_tst; t < __stop_cr_tst; t++) {
        char name[256];
        snprintf(name, sizeof name, "%s/%s", (*t)->category, (*t)->name);
        if (argc > 1 && !strstr(name, argv[1]))
            continue;
        const int result = disabled(*t) ? SKIPPED : run_all_params(*t);
        const int bad = result && result != SKIPPED;
        printf("%sok %d - %s%s\n", bad ? "not " : "", ++number, name, result == SKIPPED ? " # SKIP" : "");
        failed += bad;
    }
    return failed ? 1 : 0;
}
