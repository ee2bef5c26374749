/* Workers and clients with the habits of programs that people really have, in C over bare TCP.

   They speak ZMTP 2.0, as libzmq 3 does: no mechanism, and no heartbeats of ZMTP.

       cc -o quirky quirky.c
       ./quirky HABIT PORT [FIRST COUNT]

   Workers answer each frame in upper case:

       word-simple        sends the word READY to a queue of Simple Pirates, from a REQ socket
       word-paranoid      sends the words READY and HEARTBEAT
       cstring-majordomo  keeps the address of the client as a C string
       bare-majordomo     does that, and sends REPLY without the empty frame
       silent-paranoid, silent-ping-pong, silent-majordomo
                          drop their first request, and go on with signs of life

   Clients send COUNT requests rFIRST, rFIRST+1, ... and print each wrong reply. A client that waits
   for two seconds connects anew and asks again:

       pirate-client, majordomo-client            bodies of one frame
       wide-pirate-client, wide-majordomo-client  bodies of 60 frames */

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FRAMES 128
#define WIDE 60
#define INTERVAL_MS 100
#define TRY_MS 2000

struct frame { unsigned char *data; size_t size; };
struct message { struct frame frames[MAX_FRAMES]; int count; };

static int stream = -1;
static struct message message;

/* -- ZMTP 2.0 */

static int read_all(void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t part = read(stream, (char *)data + done, size - done);
        if (part <= 0) return 0;
        done += (size_t)part;
    }
    return 1;
}

static int write_all(const void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t part = send(stream, (const char *)data + done, size - done, MSG_NOSIGNAL);
        if (part <= 0) return 0;
        done += (size_t)part;
    }
    return 1;
}

static int send_frame(const void *data, size_t size, int more) {
    unsigned char head[9] = {(unsigned char)(more | (size > 255 ? 2 : 0))};
    size_t length = 2;
    if (size > 255) {
        for (int byte = 0; byte < 8; byte++) head[1 + byte] = (unsigned char)(size >> 8 * (7 - byte));
        length = 9;
    } else {
        head[1] = (unsigned char)size;
    }
    return write_all(head, length) && write_all(data, size);
}

static int send_text(const char *text, int more) { return send_frame(text, strlen(text), more); }

static int receive(void) {
    unsigned char flags = 1, small, large[8];
    while (message.count > 0) free(message.frames[--message.count].data);
    while (flags & 1) {
        size_t size = 0;
        if (message.count == MAX_FRAMES || !read_all(&flags, 1)) return 0;
        if (flags & 2) {
            if (!read_all(large, 8)) return 0;
            for (int byte = 0; byte < 8; byte++) size = size << 8 | large[byte];
        } else {
            if (!read_all(&small, 1)) return 0;
            size = small;
        }
        struct frame *frame = &message.frames[message.count++];
        frame->size = size;
        frame->data = malloc(size + 1);
        if (!frame->data || !read_all(frame->data, size)) return 0;
        frame->data[size] = 0;
    }
    return 1;
}

static int is_text(int index, const char *text) {
    struct frame *frame = &message.frames[index];
    return index < message.count && frame->size == strlen(text) && !memcmp(frame->data, text, frame->size);
}

static int open_stream(int port) {
    /* the signature, revision 1, a DEALER, and an empty routing id */
    static const unsigned char greeting[] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 1, 5, 0, 0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    unsigned char answer[12];
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (stream >= 0) close(stream);
    stream = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connect(stream, (struct sockaddr *)&address, sizeof address) == 0
        && write_all(greeting, sizeof greeting) && read_all(answer, sizeof answer) && receive();
}

static int has_input(int milliseconds) {
    struct pollfd input = {stream, POLLIN, 0};
    return poll(&input, 1, milliseconds) > 0;
}

/* -- workers: each returns when its connection ends */

static int send_upper(int first) {
    for (int index = first; index < message.count; index++) {
        struct frame *frame = &message.frames[index];
        for (size_t byte = 0; byte < frame->size; byte++) frame->data[byte] = (unsigned char)toupper(frame->data[byte]);
        if (!send_frame(frame->data, frame->size, index + 1 < message.count)) return 0;
    }
    return 1;
}

static int work_as_pirate(int paranoid, int silent) {
    int start = paranoid ? 0 : 1; /* a REQ socket adds an empty frame */
    if (!paranoid && !send_text("", 1)) return 1;
    if (!send_text("READY", 0)) return 1;
    for (;;) {
        if (!has_input(INTERVAL_MS)) {
            if (paranoid && !send_text("HEARTBEAT", 0)) return 1;
            continue;
        }
        if (!receive()) return 1;
        if (paranoid && message.count == 1) continue; /* a heartbeat of the queue */
        if (silent) {
            silent = 0;
            continue;
        }
        int delimiter = start;
        while (delimiter + 1 < message.count && message.frames[delimiter].size) delimiter++;
        if (!paranoid && !send_text("", 1)) return 1;
        for (int index = start; index <= delimiter; index++)
            if (!send_frame(message.frames[index].data, message.frames[index].size, 1)) return 1;
        if (!send_upper(delimiter + 1)) return 1;
    }
}

static int send_majordomo(const char *command, int more) {
    return send_text("", 1) && send_text("MDPW01", 1) && send_text(command, more);
}

static int work_for_majordomo(int bare, int silent) {
    if (!send_majordomo("\1", 1) || !send_text("echo", 0)) return 1;
    for (;;) {
        if (!has_input(INTERVAL_MS)) {
            if (!send_majordomo("\4", 0)) return 1;
            continue;
        }
        if (!receive()) return 1;
        if (!is_text(2, "\2")) continue;
        if (silent) {
            silent = 0;
            continue;
        }
        /* The address is a C string: it ends at the first zero byte. */
        if (!send_majordomo("\3", 1) || !send_text((char *)message.frames[3].data, 1)) return 1;
        if (!bare && !send_text("", 1)) return 1;
        if (!send_upper(5)) return 1;
    }
}

static int work_for_ping_pong(int silent) {
    if (!send_text("", 1) || !send_text("READY", 0)) return 1;
    for (;;) {
        if (!has_input(INTERVAL_MS)) {
            if (!send_text("", 1) || !send_text("PING", 0)) return 1;
            continue;
        }
        if (!receive()) return 1;
        if (message.count == 2 && is_text(1, "PONG")) continue;
        if (silent) silent = 0;
        else if (!send_text("", 1) || !send_upper(1)) return 1;
    }
}

/* -- clients */

static int ask(int majordomo, int frames, const char *body) {
    char part[32];
    if (!send_text("", 1)) return 0;
    if (majordomo && (!send_text("MDPC01", 1) || !send_text("echo", 1))) return 0;
    if (!send_text(body, frames > 1)) return 0;
    for (int index = 1; index < frames; index++) {
        snprintf(part, sizeof part, "f%d", index);
        if (!send_text(part, index + 1 < frames)) return 0;
    }
    return 1;
}

static int is_reply(int majordomo, int frames, long number) {
    char part[32];
    int head = majordomo ? 3 : 1;
    snprintf(part, sizeof part, "R%ld", number);
    if (message.count != head + frames || !is_text(head, part)) return 0;
    for (int index = 1; index < frames; index++) {
        snprintf(part, sizeof part, "F%d", index);
        if (!is_text(head + index, part)) return 0;
    }
    return 1;
}

static int be_client(int port, int majordomo, int frames, long first, long count) {
    char body[32];
    long wrong = 0;
    for (long number = first; number < first + count; number++) {
        snprintf(body, sizeof body, "r%ld", number);
        while (!ask(majordomo, frames, body) || !has_input(TRY_MS) || !receive())
            while (!open_stream(port)) usleep(10000);
        if (!is_reply(majordomo, frames, number)) {
            printf("wrong reply to %s\n", body);
            wrong++;
        }
    }
    printf("%ld wrong of %ld\n", wrong, count);
    return wrong > 0;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *habit = words[1];
    int port = atoi(words[2]);
    if (!open_stream(port)) return 1;
    if (!strcmp(habit, "word-simple")) return work_as_pirate(0, 0);
    if (!strcmp(habit, "word-paranoid")) return work_as_pirate(1, 0);
    if (!strcmp(habit, "silent-paranoid")) return work_as_pirate(1, 1);
    if (!strcmp(habit, "cstring-majordomo")) return work_for_majordomo(0, 0);
    if (!strcmp(habit, "bare-majordomo")) return work_for_majordomo(1, 0);
    if (!strcmp(habit, "silent-majordomo")) return work_for_majordomo(0, 1);
    if (!strcmp(habit, "silent-ping-pong")) return work_for_ping_pong(1);
    if (count < 5) return 2;
    int frames = 1;
    if (!strncmp(habit, "wide-", 5)) {
        frames = WIDE;
        habit += 5;
    }
    int majordomo = !strcmp(habit, "majordomo-client");
    if (!majordomo && strcmp(habit, "pirate-client")) return 2;
    return be_client(port, majordomo, frames, atol(words[3]), atol(words[4]));
}
