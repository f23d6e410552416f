/* A far worker in one small process, for checks with many far sessions: it speaks the link protocol (workers/link) and answers
 * frames of the supervisor (crates/protocol/src/worker.rs). It runs no tool. Called by scale.py: `stand_in VERSION`. */

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DATA = 0, RECEIVED = 1, KEEP_ALIVE = 2, END = 3 };
enum { MAX_DATA = 65536, MAX_FRAME = 1 << 20 };

/* Pages that are not touched take no memory. */
static unsigned char payload[MAX_DATA];
static unsigned char frame[MAX_FRAME + 1];
static size_t frame_length;
static uint64_t n_received;

static void read_all(void *to, size_t n) {
    unsigned char *at = to;
    while (n > 0) {
        ssize_t got = read(STDIN_FILENO, at, n);
        if (got <= 0) exit(0);
        at += got;
        n -= (size_t)got;
    }
}

static void write_all(const void *from, size_t n) {
    const unsigned char *at = from;
    while (n > 0) {
        ssize_t put = write(STDOUT_FILENO, at, n);
        if (put <= 0) exit(0);
        at += put;
        n -= (size_t)put;
    }
}

static void send_packet(unsigned char kind, const void *data, uint32_t n) {
    unsigned char header[5] = {kind};
    uint32_t length = htonl(n);
    memcpy(header + 1, &length, 4);
    write_all(header, sizeof header);
    write_all(data, n);
}

static void send_frame(const char *json) {
    static char framed[4096];
    uint32_t n = (uint32_t)strlen(json), length = htonl(n);
    memcpy(framed, &length, 4);
    memcpy(framed + 4, json, n);
    send_packet(DATA, framed, n + 4);
}

/* Answers the complete frame. */
static void answer(void) {
    static char text[2048];
    const char *json = (const char *)frame + 4, *id;
    if (strncmp(json, "{\"start\"", 8) == 0) {
        snprintf(text, sizeof text, "{\"hello\":{\"proto\":1,\"version\":\"stand-in\",\"pid\":%d,\"sandbox\":"
                 "{\"tier\":\"A\",\"policy\":\"workspace-write\",\"network\":false}}}", (int)getpid());
    } else if (strncmp(json, "{\"ping\"", 7) == 0 && (id = strstr(json, "\"seq\":"))) {
        snprintf(text, sizeof text, "{\"pong\":{\"seq\":%llu}}", strtoull(id + 6, NULL, 10));
    } else if (strncmp(json, "{\"tool_call\"", 12) == 0 && (id = strstr(json, "\"call_id\":\""))) {
        int n = (int)strcspn(id + 11, "\"");
        snprintf(text, sizeof text, "{\"tool_finished\":{\"call_id\":\"%.*s\",\"text\":\"answered by %d\"}}", n, id + 11,
                 (int)getpid());
    } else if (strncmp(json, "{\"shutdown\"", 11) == 0) {
        send_packet(END, "{\"code\":0}", 10);
        return;
    } else {
        return;
    }
    send_frame(text);
}

/* Takes bytes of the stream: frames of a length and JSON. */
static void take(const unsigned char *data, size_t n) {
    n_received += n;
    for (size_t i = 0; i < n; i++) {
        frame[frame_length++] = data[i];
        uint32_t length = UINT32_MAX;
        if (frame_length >= 4) {
            memcpy(&length, frame, 4);
            length = ntohl(length);
            if (length > MAX_FRAME - 4) exit(1);
        }
        if (frame_length >= 4 && frame_length == 4 + (size_t)length) {
            frame[frame_length] = 0;
            answer();
            frame_length = 0;
        }
    }
    unsigned char total[8];
    for (int i = 0; i < 8; i++) total[i] = (unsigned char)(n_received >> (56 - 8 * i));
    send_packet(RECEIVED, total, sizeof total);
}

int main(int argc, char **argv) {
    char line[512], byte;
    int n = snprintf(line, sizeof line, "\nquackd: ready {\"proto\":1,\"version\":\"%s\",\"received\":0}\n",
                     argc > 1 ? argv[1] : "");
    write_all(line, (size_t)n);
    do read_all(&byte, 1);
    while (byte != '\n');
    for (;;) {
        unsigned char header[5];
        uint32_t length;
        read_all(header, sizeof header);
        memcpy(&length, header + 1, 4);
        length = ntohl(length);
        if (length > MAX_DATA) exit(1);
        read_all(payload, length);
        if (header[0] == END) return 0;
        if (header[0] == DATA) take(payload, length);
        /* The link process sends one after each 2 s of silence. */
        if (header[0] == KEEP_ALIVE) send_packet(KEEP_ALIVE, "", 0);
    }
}
