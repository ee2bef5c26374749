/* What both programs share: CBOR as a small WMP/1 peer needs it (WMP-2.2), heads, and the frames of a message. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>
enum { READY = 1, WAKE, GIVE, TAKE, NO, DONE, STATUS, CANCEL, PING, PONG, BYE, FRAMES = 64 };
typedef unsigned char u8;
typedef uint64_t u64;
typedef struct { const u8 *p; size_t n; } span; /* an item of CBOR, or the bytes in it */
enum { UINT, BYTES = 2, TEXT, ARRAY, MAP, TAG };
static u8 out[8192]; /* what is being written */
static size_t o, map_at, me_n, mine_n;
static u8 me[64], mine[64]; /* `from` of this peer, and `to` of messages to it */
static int count, unit = 1000;
static int bad; /* whether bytes that were read are not the CBOR that was expected */

/* Reading: items are cut from the front of a span. */
static u64 head(span *c, int *major) {
  int low = c->n ? *c->p & 31 : 31, size = low < 24 ? 0 : 1 << (low & 3), i;
  u64 value = low;
  *major = c->n ? *c->p >> 5 : 7;
  if (low > 27 || c->n < 1u + size) return c->n = 0, bad = 1, 0;
  for (i = 1, value = size ? 0 : low; i <= size; i++) value = value << 8 | c->p[i];
  return c->p += 1 + size, c->n -= 1 + size, value;
}
static span item(span *c, int depth) {
  span s = *c;
  int major;
  u64 value = head(c, &major), left = major == MAP ? 2 * value : value;
  if (major == TAG || (major > 1 && major < 6 && value > c->n) || depth > 16) bad = 1;
  else if (major == BYTES || major == TEXT) c->p += value, c->n -= value;
  else if (major == ARRAY || major == MAP) while (left-- && !bad) item(c, depth + 1);
  return s.n = c->p - s.p, s;
}
static int is(span s, int major) { return s.n && *s.p >> 5 == major; }
static u64 open_(span *s, int major) { int seen; u64 v = head(s, &seen); if (seen != major) bad = 1; return bad ? 0 : v; }
static u64 number(span s) { return s.n ? open_(&s, UINT) : 0; }
static span body(span s, int major) { open_(&s, major); return s; }
static int same(span s, const void *p, size_t n) { return s.n == n && !memcmp(s.p, p, n); }
static void fields(span map, span *at, u64 limit) { /* put the value of each small unsigned key into `at` */
  u64 left = open_(&map, MAP);
  while (left-- && !bad) {
    span key = item(&map, 2), value = item(&map, 2);
    if (is(key, UINT) && number(key) < limit) at[number(key)] = value;
  }
  if (map.n) bad = 1;
}
static void put(int major, u64 v) {
  int size = v < 24 ? 0 : v < 256 ? 1 : v < 65536 ? 2 : v >> 32 ? 8 : 4;
  out[o++] = major << 5 | (size ? 24 + (size > 1) + (size > 2) + (size > 4) : (int)v);
  while (size--) out[o++] = v >> 8 * size;
}
static void raw(const void *p, size_t n) { memcpy(out + o, p, n); o += n; }
static int parsed(span head_, span *to, span *from, span *at, u64 limit) { /* cut a head into its parts; returns the command */
  int command = head_.n > 3 && head_.p[0] == 0x85 && head_.p[1] == 1 ? head_.p[2] : (bad = 1, 0);
  if (bad) return 0;
  head_.p += 3; head_.n -= 3; *to = item(&head_, 1); *from = item(&head_, 1); fields(head_, at, limit);
  return command;
}
typedef struct { u64 id, attempt, outcome; span payload; } row;
static int rows(span *frames, int n, row *to, u64 limit) { /* read the columns and payloads behind a head; returns the number of jobs */
  span at[6] = {{0}}, c[6], p;
  int next = 1, i;
  u64 k, count_;
  if (n < 1) return bad = 1, 0;
  fields(frames[0], at, 6); memcpy(c, at, sizeof c);
  for (i = 1; i < 5; i++) if (is(c[i], ARRAY)) count_ = open_(&c[i], ARRAY);
  p = at[1]; count_ = open_(&p, ARRAY);
  if (open_(&c[5], ARRAY) != count_ || !count_ || count_ > limit) bad = 1;
  for (k = 0; k < count_ && !bad; k++) {
    to[k].id = number(item(&c[1], 1)); to[k].attempt = number(is(at[2], ARRAY) ? item(&c[2], 1) : at[2]);
    to[k].outcome = number(is(at[4], ARRAY) ? item(&c[4], 1) : at[4]); p = item(&c[5], 1);
    to[k].payload = is(p, BYTES) ? body(p, BYTES) : next < n && same(p, "\xf6", 1) ? frames[next++] : (bad = 1, p);
    if (!to[k].id || !to[k].attempt) bad = 1;
  }
  if (next != n) bad = 1;
  return bad ? 0 : count_;
}
static span text(span s) { return body(s, TEXT); }
static int lists(span array, const char *word) { /* whether an array of text has a word */
  u64 left = open_(&array, ARRAY);
  int found = 0;
  while (left-- && !bad) found |= same(text(item(&array, 1)), word, strlen(word));
  return found;
}
static u64 slots_of(span map) { /* the amount of `slots` in a map of resources or needs */
  u64 left = open_(&map, MAP), amount = 0;
  while (left-- && !bad) {
    span name = text(item(&map, 1)), value = item(&map, 1);
    if (same(name, "slots", 5)) amount = number(value); else number(value);
  }
  return amount;
}
/* Writing a message: begin, the fields by ascending key, end. */
static void key(int k) { put(UINT, k); count++; }
static void flag(int k) { key(k); out[o++] = 0xf5; }
static void words(int k, const char *s) { key(k); put(TEXT, strlen(s)); raw(s, strlen(s)); }
static void field(int k, u64 v) { key(k); put(UINT, v); }
static void begin(int command, const u8 *to, size_t to_n, u64 number, u64 ack, u64 session) {
  o = count = 0; out[o++] = 0x85; out[o++] = 1; out[o++] = command;
  if (to_n) raw(to, to_n); else put(ARRAY, 0);
  raw(me, me_n); map_at = o++;
  if (number) field(0, number);
  if (session) field(1, ack), field(2, session);
}
static int end(void *link, int flags) { out[map_at] = 0xa0 | count; return zmq_send(link, out, o, ZMQ_DONTWAIT | flags); }
static span reversed(span path, u64 *epoch, u8 *to, size_t *to_n) { /* the path of an answer; returns the identity */
  span part[50] = {{0}}, name = {0};
  *epoch = *to_n = 0;
  u64 n = open_(&path, ARRAY), i;
  if (n > 50 || n % 3 != 2) return bad = 1, name;
  for (i = 0; i < n; i++) part[i] = item(&path, 2);
  *epoch = number(part[1]); name = body(part[0], BYTES);
  if (!name.n || name.n > 255) bad = 1;
  for (o = 0, put(ARRAY, n); n-- && !bad && o < 1500;) {
    if (is(part[n], UINT)) put(UINT, number(part[n])); else put(BYTES, body(part[n], BYTES).n), raw(body(part[n], BYTES).p, body(part[n], BYTES).n);
  }
  memcpy(to, out, *to_n = o);
  return name;
}
static u64 now(void) { struct timespec t; return clock_gettime(CLOCK_MONOTONIC, &t), t.tv_sec * 1000ull + t.tv_nsec / 1000000; }
static void leave(int number) { (void)number; _exit(0); }
static void introduce(const char *role) { /* choose identity and epoch, and end at SIGTERM */
  u64 epoch = (u64)time(NULL) * 1000 + getpid() % 1000;
  char name[32]; int n = snprintf(name, sizeof name, "%s-%d", role, (int)getpid());
  o = 0; put(ARRAY, 2); put(BYTES, n); raw(name, n); put(UINT, epoch); memcpy(me, out, me_n = o);
  o = 0; put(ARRAY, 2); put(UINT, epoch); put(BYTES, n); raw(name, n); memcpy(mine, out, mine_n = o);
  signal(SIGTERM, leave);
}
static void *connected(void *context, int type, const char *address, int binds) {
  void *link = zmq_socket(context, type);
  int64_t size = 1 << 28; int beat = 1000, one = 1;
  zmq_setsockopt(link, ZMQ_MAXMSGSIZE, &size, sizeof size);
  zmq_setsockopt(link, ZMQ_HEARTBEAT_IVL, &beat, sizeof beat);
  if (binds) zmq_setsockopt(link, ZMQ_ROUTER_MANDATORY, &one, sizeof one);
  if (binds ? zmq_bind(link, address) : zmq_connect(link, address)) exit((perror(address), 2));
  return link;
}
static void receive(void *link, void (*act)(void *, span *, int)) { /* read one message, drop it if it has too many frames */
  zmq_msg_t part[FRAMES + 1];
  span frames[FRAMES + 1];
  int k = 0, at, more = 1;
  for (; more; k++) {
    at = k < FRAMES ? k : FRAMES;
    if (at < k) zmq_msg_close(&part[at]);
    zmq_msg_init(&part[at]); zmq_msg_recv(&part[at], link, 0); more = zmq_msg_more(&part[at]);
    frames[at] = (span){zmq_msg_data(&part[at]), zmq_msg_size(&part[at])};
  }
  bad = 0;
  if (k <= FRAMES) act(link, frames, k);
  for (k = k > FRAMES ? FRAMES + 1 : k; k--;) zmq_msg_close(&part[k]);
}
