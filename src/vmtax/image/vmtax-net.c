/* Sends bytes over TCP from one machine to another, and says how many arrived in which time: for Windows, where iperf3
 * does not exist without Cygwin. The same source is built for Linux, where it is checked against iperf3.
 *
 *   vmtax-net receive ADDRESS PORT                 takes one connection, counts what comes, answers with the count
 *   vmtax-net send ADDRESS PORT SECONDS [RATE]     sends for that time, at RATE bytes a second or as fast as it can
 *
 * The clock of the sender runs from its first byte until the receiver has answered: what lies in buffers, and never
 * arrives, does not count. Each prints one line of JSON.
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
#define COUNT_BYTES 8       /* of the receiver's answer, the least significant first */

static void fail(const char *what)
{
    fprintf(stderr, "vmtax-net: %s: error %d\n", what, (int)LAST_ERROR);
    exit(1);
}

static void usage(void)
{
    fputs("usage: vmtax-net receive ADDRESS PORT\n       vmtax-net send ADDRESS PORT SECONDS [BYTES_PER_SECOND]\n", stderr);
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

static void result(const char *side, uint64_t bytes, double seconds)
{
    printf("{\"side\": \"%s\", \"bytes\": %llu, \"seconds\": %.6f}\n", side, (unsigned long long)bytes, seconds);
    fflush(stdout);
}

static int receive_all(const char *address, const char *port, char *block)
{
    struct sockaddr_in own = place(address, port);
    socklen_t size = sizeof own;
    socket_t listening = socket(AF_INET, SOCK_STREAM, 0), peer;
    uint64_t bytes = 0;
    unsigned char answer[COUNT_BYTES];
    double began = 0, ended = 0;
    int yes = 1, got, i;

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
    limit(listening);
    peer = accept(listening, NULL, NULL);
    if (peer == NO_SOCKET)
        fail("nobody came");
    limit(peer);
    while ((got = (int)recv(peer, block, BLOCK, 0)) > 0) {
        if (!bytes)
            began = now();
        bytes += (uint64_t)got;
    }
    ended = now();
    if (got < 0)
        fail("the sender is gone");
    for (i = 0; i < COUNT_BYTES; i++)
        answer[i] = (unsigned char)(bytes >> 8 * i);
    if (send(peer, (const char *)answer, COUNT_BYTES, 0) != COUNT_BYTES)
        fail("the count does not reach the sender");
    close_socket(peer);
    close_socket(listening);
    result("receive", bytes, bytes ? ended - began : 0);
    (void)yes;
    return 0;
}

static int send_all(const char *address, const char *port, double seconds, double rate, char *block)
{
    struct sockaddr_in peer = place(address, port);
    socket_t one = socket(AF_INET, SOCK_STREAM, 0);
    uint64_t bytes = 0, arrived = 0;
    unsigned char answer[COUNT_BYTES];
    double began, passed;
    int sent, got = 0, more, i;

    if (one == NO_SOCKET)
        fail("no socket");
    limit(one);
    if (connect(one, (struct sockaddr *)&peer, sizeof peer))
        fail("cannot connect");
    began = now();
    while ((passed = now() - began) < seconds) {
        if (rate > 0 && (double)bytes > rate * passed) {
            rest(0.001);
            continue;
        }
        sent = (int)send(one, block, BLOCK, 0);
        if (sent <= 0)
            fail("the receiver is gone");
        bytes += (uint64_t)sent;
    }
    shutdown(one, SHUT_WR);
    while (got < COUNT_BYTES && (more = (int)recv(one, (char *)answer + got, (size_t)(COUNT_BYTES - got), 0)) > 0)
        got += more;
    passed = now() - began;
    if (got < COUNT_BYTES)
        fail("the receiver does not answer");
    for (i = 0; i < COUNT_BYTES; i++)
        arrived |= (uint64_t)answer[i] << 8 * i;
    close_socket(one);
    if (arrived != bytes) {
        fprintf(stderr, "vmtax-net: %llu of %llu bytes arrived\n", (unsigned long long)arrived, (unsigned long long)bytes);
        return 1;
    }
    result("send", bytes, passed);
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
    if (argc == 4 && !strcmp(argv[1], "receive"))
        return receive_all(argv[2], argv[3], block);
    if ((argc == 5 || argc == 6) && !strcmp(argv[1], "send"))
        return send_all(argv[2], argv[3], number(argv[4], 0.1, 3600), argc == 6 ? number(argv[5], 1, 1e12) : 0, block);
    usage();
    return 2;
}
