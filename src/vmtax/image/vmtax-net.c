/* Sends bytes over TCP from one machine to another, and says how many arrived in which time, and what CPU time both ends
 * took: for Windows, where iperf3 does not exist without Cygwin. The same source is built for Linux, where it is checked
 * against iperf3.
 *
 *   vmtax-net serve ADDRESS PORT                     takes one connection after the other, for the two below
 *   vmtax-net send ADDRESS PORT SECONDS [RATE]       sends for that time, at RATE bytes a second or as fast as it can
 *   vmtax-net receive ADDRESS PORT SECONDS [RATE]    the same the other way, over a connection of its own
 *
 * A client begins with REQUEST bytes: the way, the milliseconds, the bytes a second. The receiving end counts, and the
 * clock of the client runs from the first byte until the count is known: what lies in buffers, and never arrives, does
 * not count. A client prints one line of JSON.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _WIN32
#include <winsock2.h>
#include <ws2tcpip.h>
typedef SOCKET socket_t;
#define NO_SOCKET INVALID_SOCKET
#define LAST_ERROR WSAGetLastError()
#define close_socket closesocket
#define SHUT_WR SD_SEND
#else
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
typedef int socket_t;
#define NO_SOCKET (-1)
#define LAST_ERROR errno
#define close_socket close
#endif

#define BLOCK 131072        /* bytes of one send, as of iperf3 */
#define PATIENCE 30         /* seconds that a peer may say nothing */
#define MOST_SECONDS 3600
#define REQUEST 24          /* three numbers of 8 bytes, as in all that the ends tell each other */
#define ANSWER 16           /* the bytes that the far end counted, and microseconds of CPU time that this took it */

static void fail(const char *what)
{
    fprintf(stderr, "vmtax-net: %s: error %d\n", what, (int)LAST_ERROR);
    exit(1);
}

static void usage(void)
{
    fputs("usage: vmtax-net serve ADDRESS PORT\n       vmtax-net send|receive ADDRESS PORT SECONDS [BYTES_PER_SECOND]\n",
          stderr);
    exit(2);
}

/* Seconds of a clock that nobody sets. */
static double now(void)
{
#ifdef _WIN32
    LARGE_INTEGER count, frequency;
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&count);
    return (double)count.QuadPart / (double)frequency.QuadPart;
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
#endif
}

static void rest(double seconds)
{
#ifdef _WIN32
    Sleep((DWORD)(seconds * 1000));
#else
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
#endif
}

/* A whole text as a number above or equal to `least`. */
static double number(const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most))
        usage();
    return value;
}

static struct sockaddr_in place(const char *address, const char *port)
{
    struct sockaddr_in found;
    memset(&found, 0, sizeof found);
    found.sin_family = AF_INET;
    found.sin_port = htons((unsigned short)number(port, 0, 65535));
    if (inet_pton(AF_INET, address, &found.sin_addr) != 1)
        usage();
    return found;
}

static void limit(socket_t one)
{
#ifdef _WIN32
    DWORD limit = PATIENCE * 1000;
#else
    struct timeval limit = {PATIENCE, 0};
#endif
    setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, (const char *)&limit, sizeof limit);
    setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, (const char *)&limit, sizeof limit);
}

/* Seconds of CPU time that this program took so far, also in its kernel. */
static double cpu(void)
{
#ifdef _WIN32
    FILETIME born, died, kernel, user;
    GetProcessTimes(GetCurrentProcess(), &born, &died, &kernel, &user);
    return ((double)kernel.dwHighDateTime + (double)user.dwHighDateTime) * 429.4967296
           + ((double)kernel.dwLowDateTime + (double)user.dwLowDateTime) / 1e7;
#else
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
           + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
#endif
}

/* Numbers of 8 bytes, the least significant first. */
static void put(unsigned char *to, uint64_t value)
{
    int i;
    for (i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t taken(const unsigned char *from)
{
    uint64_t value = 0;
    int i;
    for (i = 0; i < 8; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

/* Whether all of it was sent, or came. */
static int all_sent(socket_t one, const unsigned char *bytes, int size)
{
    int done = 0, more;
    while (done < size && (more = (int)send(one, (const char *)bytes + done, (size_t)(size - done), 0)) > 0)
        done += more;
    return done == size;
}

static int all_came(socket_t one, unsigned char *bytes, int size)
{
    int done = 0, more;
    while (done < size && (more = (int)recv(one, (char *)bytes + done, (size_t)(size - done), 0)) > 0)
        done += more;
    return done == size;
}

/* Bytes that were sent in that time; negative: the other end is gone. */
static int64_t pour(socket_t one, const char *block, double seconds, double rate)
{
    double began = now(), passed;
    int64_t bytes = 0;
    int sent;
    while ((passed = now() - began) < seconds) {
        if (rate > 0 && (double)bytes > rate * passed) {
            rest(0.001);
            continue;
        }
        sent = (int)send(one, block, BLOCK, 0);
        if (sent <= 0)
            return -1;
        bytes += sent;
    }
    return bytes;
}

/* Bytes that came until the other end had sent all; negative: it is gone. */
static int64_t drain(socket_t one, char *block, double *began)
{
    int64_t bytes = 0;
    int got;
    while ((got = (int)recv(one, block, BLOCK, 0)) > 0) {
        if (!bytes)
            *began = now();
        bytes += got;
    }
    return got < 0 ? -1 : bytes;
}

/* The same, if the last ANSWER bytes are the other end's answer. */
static int64_t drain_counted(socket_t one, char *block, double *began, unsigned char *answer)
{
    unsigned char *tail = answer;
    int64_t bytes = 0;
    int got, kept = 0, keep;
    while ((got = (int)recv(one, block, BLOCK, 0)) > 0) {
        if (!bytes)
            *began = now();
        bytes += got;
        if (got >= ANSWER) {
            memcpy(tail, block + got - ANSWER, ANSWER);
            kept = ANSWER;
            continue;
        }
        keep = kept < ANSWER - got ? kept : ANSWER - got;
        memmove(tail, tail + kept - keep, (size_t)keep);
        memcpy(tail + keep, block, (size_t)got);
        kept = keep + got;
    }
    return got < 0 || kept < ANSWER ? -1 : bytes - ANSWER;
}

/* Serves one client; it says itself what went wrong. */
static void serve_one(socket_t peer, char *block)
{
    unsigned char request[REQUEST], answer[ANSWER];
    double before = cpu(), began;
    int64_t bytes;
    limit(peer);
    if (!all_came(peer, request, REQUEST) || taken(request) > 1 || taken(request + 8) > MOST_SECONDS * 1000)
        return;
    if (taken(request))
        bytes = pour(peer, block, (double)taken(request + 8) / 1000, (double)taken(request + 16));
    else
        bytes = drain(peer, block, &began);
    if (bytes < 0)
        return;
    put(answer, (uint64_t)bytes);
    put(answer + 8, (uint64_t)((cpu() - before) * 1e6));
    all_sent(peer, answer, ANSWER);
    shutdown(peer, SHUT_WR);
}

static void serve(const char *address, const char *port, char *block)
{
    struct sockaddr_in own = place(address, port);
    socklen_t size = sizeof own;
    socket_t listening = socket(AF_INET, SOCK_STREAM, 0), peer;
    int yes = 1;

    if (listening == NO_SOCKET)
        fail("no socket");
#ifndef _WIN32 /* on Windows, this lets others take the port */
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, (const char *)&yes, sizeof yes);
#endif
    if (bind(listening, (struct sockaddr *)&own, sizeof own) || listen(listening, 1))
        fail("cannot listen there");
    if (getsockname(listening, (struct sockaddr *)&own, &size))
        fail("no port");
    printf("{\"side\": \"ready\", \"port\": %d}\n", ntohs(own.sin_port));
    fflush(stdout);
    for (;;) {
        peer = accept(listening, NULL, NULL);
        if (peer == NO_SOCKET)
            fail("nobody came");
        serve_one(peer, block);
        close_socket(peer);
        (void)yes;
    }
}

static int ask(int receives, const char *address, const char *port, double seconds, double rate, char *block)
{
    struct sockaddr_in there = place(address, port);
    socket_t one = socket(AF_INET, SOCK_STREAM, 0);
    unsigned char request[REQUEST], answer[ANSWER];
    double began, passed, before;
    int64_t bytes, counted;

    if (one == NO_SOCKET)
        fail("no socket");
    limit(one);
    if (connect(one, (struct sockaddr *)&there, sizeof there))
        fail("cannot connect: a firewall there?");
    put(request, (uint64_t)receives);
    put(request + 8, (uint64_t)(seconds * 1000));
    put(request + 16, (uint64_t)rate);
    if (!all_sent(one, request, REQUEST))
        fail("the server is gone");
    before = cpu();
    began = now();
    bytes = receives ? drain_counted(one, block, &began, answer) : pour(one, block, seconds, rate);
    if (bytes < 0)
        fail("the other end is gone");
    if (!receives)
        shutdown(one, SHUT_WR);
    if (!receives && !all_came(one, answer, ANSWER))
        fail("the receiver does not answer");
    passed = now() - began;
    counted = (int64_t)taken(answer);
    close_socket(one);
    if (counted != bytes) {
        fprintf(stderr, "vmtax-net: %lld bytes left, %lld arrived\n", (long long)(receives ? counted : bytes),
                (long long)(receives ? bytes : counted));
        return 1;
    }
    printf("{\"side\": \"%s\", \"bytes\": %lld, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"far_cpu_seconds\": %.6f}\n",
           receives ? "receive" : "send", (long long)bytes, passed, cpu() - before, (double)taken(answer + 8) / 1e6);
    return 0;
}

int main(int argc, char **argv)
{
    static char block[BLOCK];
    unsigned seed = 1;
    size_t i;
#ifdef _WIN32
    WSADATA data;
    if (WSAStartup(MAKEWORD(2, 2), &data))
        fail("no sockets");
#else
    signal(SIGPIPE, SIG_IGN);
#endif
    for (i = 0; i < BLOCK; i++) { /* bytes that no card and no tunnel compresses */
        seed = seed * 1103515245u + 12345u;
        block[i] = (char)(seed >> 16);
    }
    if (argc == 4 && !strcmp(argv[1], "serve"))
        serve(argv[2], argv[3], block);
    if ((argc == 5 || argc == 6) && (!strcmp(argv[1], "send") || !strcmp(argv[1], "receive")))
        return ask(argv[1][0] == 'r', argv[2], argv[3], number(argv[4], 0.1, MOST_SECONDS),
                   argc == 6 ? number(argv[5], 1, 1e12) : 0, block);
    usage();
    return 2;
}
