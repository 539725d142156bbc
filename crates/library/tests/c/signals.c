/* A signal handler calls the endpoint, whatever its thread is doing there just then. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#define SIGNALS 5000

/* Signals that have come, and those that met a call. */
static volatile sig_atomic_t came, met;
static portolan_endpoint *volatile called;
static int64_t in_handler;

/* Neither this call nor the one that it may interrupt takes memory. */
static void calls(int number)
{
    int64_t gave = portolan_arrived(called, 1);

    (void)number;
    came = came + 1;
    if (gave == -EDEADLK)
        met = met + 1;
    else if (gave < 0)
        _exit(3);
}

static portolan_endpoint *open_for(uint32_t threads)
{
    portolan_endpoint *endpoint;
    portolan_options options;
    char why[512];

    portolan_options_init(&options);
    options.threads = threads;
    if (portolan_open_standalone(&endpoint, &options, why, sizeof why) < 0) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    return endpoint;
}

static void *calls_too(void *user)
{
    while (came < SIGNALS)
        CHECK(portolan_arrived((portolan_endpoint *)user, 1) >= 0);
    return NULL;
}

/* Until many signals have met a call somewhere: before it, within it, behind it. */
static void interrupted(uint32_t threads)
{
    static const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    struct sigaction action;
    sigset_t set;
    pthread_t other;

    /* The helper thread and the other one leave the signals to this one. */
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    called = open_for(threads);
    came = met = 0;
    if (threads == PORTOLAN_THREADS_MULTIPLE)
        CHECK(pthread_create(&other, NULL, calls_too, called) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = calls;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (came < SIGNALS || met == 0)
        CHECK(portolan_arrived(called, 1) >= 0);
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    if (threads == PORTOLAN_THREADS_MULTIPLE)
        CHECK(pthread_join(other, NULL) == 0);
    GIVES(0, portolan_close(called));
}

static void interrupts_itself(int number)
{
    (void)number;
    in_handler = portolan_progress(called);
}

static void raises(portolan_context *context, const portolan_message *message, void *user)
{
    (void)context;
    (void)message;
    CHECK(raise(SIGUSR1) == 0);
    *(int *)user = 1;
}

static int is_set(void *user)
{
    return *(int *)user;
}

static void *ends_a_deadlock(void *user)
{
    sigset_t all;

    (void)user;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    sleep(300);
    fprintf(stderr, "a call does not return\n");
    _exit(4);
}

int main(void)
{
    portolan_binding binding;
    pthread_t guard;
    int ran = 0;

    CHECK(pthread_create(&guard, NULL, ends_a_deadlock, NULL) == 0);
    interrupted(PORTOLAN_THREADS_SINGLE);
    interrupted(PORTOLAN_THREADS_SERIALIZED);
    interrupted(PORTOLAN_THREADS_MULTIPLE);

    signal(SIGUSR1, interrupts_itself);
    called = open_for(PORTOLAN_THREADS_MULTIPLE);
    portolan_binding_init(&binding);
    binding.handler = raises;
    binding.user = &ran;
    GIVES(0, portolan_bind(called, 1, &binding));
    GIVES(0, portolan_send(called, 0, 1, "ahoy", 4));
    GIVES(0, portolan_wait_until(called, is_set, &ran, -1));
    CHECK(in_handler == -EDEADLK);
    GIVES(0, portolan_close(called));
    printf("signals: all is well\n");
    return 0;
}
