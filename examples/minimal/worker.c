/* The smallest WMP/1 worker, written from specs/smallest-worker.md: cc -O2 -o worker worker.c -lzmq
   ./worker tcp://127.0.0.1:5570[,tcp://...] [UNIT]     UNIT: milliseconds that a second of the timers takes */
#include "minimal.h"
enum { MANAGERS = 64, LINKS = 16 };
typedef struct { u8 name[255], to[2000], role[4], needs[8]; size_t name_n, to_n, needs_n;
  u64 epoch, session, sent, received, ready, served; void *link; int wake; } manager;
static manager managers[MANAGERS + 1], *lock_of, *job_of; /* which manager has the lock, and the job that runs */
static u64 lock, last_lock, lock_until, job_id, job_attempt, job_until, ready = 1;
static u8 *job, owner[300];
static size_t job_n, owner_n, known_n, job_fails;
static const char roles[] = "\x83\x64" "echo\x64" "fail\x64slow", slot[] = "\xa1\x65slots\x01";

static int room(void) { return !lock_of && !job_of; }
static int has_handler(span role) { return same(role, "echo", 4) || same(role, "slow", 4) || same(role, "fail", 4); }
static void say(int command, manager *m, u64 number) {
  begin(command, m->to, m->to_n, number, m->received, m->session);
}
static void say_ready(manager *m, void *link, int credit) {
  if (m) m->ready = ++ready, say(READY, m, 0); else begin(READY, NULL, 0, 0, 0, 0);
  field(4, ready); field(5, credit); key(7); raw(roles, 16); key(8); raw(slot, 8);
  end(link, 0);
}
static void answer(manager *m, span from, u64 id, u64 attempt, int outcome, const void *p, size_t n) {
  say(DONE, m, ++m->sent); key(16); raw(from.p, from.n);
  if (end(m->link, ZMQ_SNDMORE) < 0) return;
  o = 0; put(MAP, 4); put(UINT, 1); put(ARRAY, 1); put(UINT, id); put(UINT, 2); put(UINT, attempt);
  put(UINT, 4); put(UINT, outcome); put(UINT, 5); put(ARRAY, 1); out[o++] = 0xf6;
  zmq_send(m->link, out, o, ZMQ_DONTWAIT | ZMQ_SNDMORE);
  zmq_send(m->link, p, n, ZMQ_DONTWAIT);
}
static void use_room(void) { /* GIVE to the waiting manager that was served least recently, else READY (WMP-3.10) */
  manager *m, *next = NULL;
  if (!room()) return;
  for (m = managers; m < managers + known_n; m++) if (m->wake && (!next || m->served < next->served)) next = m;
  for (m = managers; !next && m < managers + known_n; m++) say_ready(m, m->link, 1);
  if (!next) return;
  next->served = lock = ++last_lock; lock_of = next; next->wake = 0; lock_until = now() + 5 * unit;
  say(GIVE, next, 0); key(7); put(ARRAY, 1); put(TEXT, 4); raw(next->role, 4);
  key(11); raw(next->needs, next->needs_n); field(12, lock); field(13, 1); end(next->link, 0);
}
static manager *meet(void *link, span from, u64 session) { /* NULL for a message of an old epoch or session */
  u8 to[2000];
  size_t to_n;
  u64 epoch;
  span name = reversed(from, &epoch, to, &to_n);
  manager *m = managers, none = {0};
  if (bad) return NULL;
  while (m < managers + known_n && !same(name, m->name, m->name_n)) m++;
  if (m == managers + MANAGERS || epoch < m->epoch || (epoch == m->epoch && session && session < m->session)) return NULL;
  if (m == managers + known_n || epoch > m->epoch || session > m->session) {
    known_n += m == managers + known_n;
    if (lock_of == m) lock_of = NULL;
    if (job_of == m) job_of = NULL;
    *m = none; m->epoch = epoch; m->session = session; m->ready = 1;
    memcpy(m->name, name.p, m->name_n = name.n);
  }
  memcpy(m->to, to, m->to_n = to_n); m->link = link; /* the newest route (WMP-1.8) */
  return m;
}
static void take(manager *m, span *f, row *r) {
  span role = text(f[10]), p = r->payload;
  if ((!room() && lock_of != m) || !has_handler(role)) { answer(m, f[16], r->id, r->attempt, 2, "no such role, or no room", 24); return; }
  lock_of = NULL; job_of = m; job_id = r->id; job_attempt = r->attempt; job_fails = *role.p == 'f';
  free(job); job = malloc(p.n + 1); memcpy(job, p.p, job_n = p.n); job[p.n] = 0;
  memcpy(owner, f[16].p, owner_n = f[16].n);
  job_until = now() + (*role.p == 's' ? strtoul((char *)job, NULL, 10) : 0);
}
static void act(void *link, span *frames, int n) { /* nothing changes before all parts are read */
  static row jobs[4096];
  span at[27] = {{0}}, to, from, role;
  int command, jobs_n = 0, k;
  manager *m;
  command = parsed(frames[0], &to, &from, at, 27);
  if (bad || !same(to, mine, mine_n)) return;
  if (command == TAKE || command == NO || command == CANCEL) {
    if (!number(at[0]) || !number(at[2]) || (command != CANCEL && !number(at[12]))) return;
  }
  else if (command == WAKE) { if (!number(at[9])) return; }
  else if (command != PONG || !is(at[19], UINT) || !number(at[2])) return;
  if ((command == WAKE || command == TAKE) && (!is(at[10], TEXT) || !is(at[11], MAP))) return;
  if (command == TAKE && (!is(at[16], ARRAY) || at[16].n > 299)) return;
  if (command == TAKE) jobs_n = rows(frames + 1, n - 1, jobs, 4096);
  if (bad || !(m = meet(link, from, number(at[2])))) return;
  if (at[0].n && number(at[0]) != m->received + 1) { /* a duplicate, or a gap */
    if (number(at[0]) > m->received) say(PING, m, 0), flag(3), end(link, 0);
    return;
  }
  m->received += at[0].n > 0;
  if (command == WAKE) {
    int fits = same(at[11], slot, 8) || same(at[11], "\xa0", 1);
    role = body(at[10], TEXT);
    if (fits && has_handler(role)) { /* the WAKE stays pending (WMP-3.9) */
      m->wake = 1; memcpy(m->role, role.p, 4); memcpy(m->needs, at[11].p, m->needs_n = at[11].n);
    }
    if (fits && has_handler(role) && room()) use_room(); else say_ready(m, link, 0);
  } else if (command == PONG) {
    int knows = number(at[4]) == m->ready && (!room() || number(at[5]));
    if (!m->wake && lock_of != m && !knows) say_ready(m, link, room());
  } else if (command != CANCEL) {
    if (lock_of == m && lock == number(at[12])) lock_of = NULL;
    for (k = 0; k < jobs_n; k++) take(m, at, &jobs[k]);
    use_room();
  }
}
static void tick(void **links, int n) {
  static u64 ping_at;
  manager *m = job_of;
  if (lock_of && now() > lock_until) lock_of = NULL, use_room();
  if (m && now() >= job_until) {
    span from = {owner, owner_n};
    job_of = NULL;
    if (job_fails) answer(m, from, job_id, job_attempt, 1, "\x83\x65" "Error\x66" "failed\x60", 15);
    else answer(m, from, job_id, job_attempt, 0, job, job_n);
    use_room();
  }
  if (now() < ping_at) return;
  for (ping_at = now() + unit; n--;) begin(PING, NULL, 0, 0, 0, 0), end(links[n], 0);
  for (m = managers; m < managers + known_n; m++) {
    say(PING, m, 0);
    if (job_of != m) flag(26); /* idle */
    end(m->link, 0);
  }
}
int main(int argc, char **argv) {
  void *context = zmq_ctx_new(), *links[LINKS];
  int n = 0, i;
  char *address = strtok(argc > 1 ? argv[1] : strdup("tcp://127.0.0.1:5570"), ",");
  zmq_pollitem_t polled[LINKS];
  if (argc > 2) unit = atoi(argv[2]);
  for (introduce("worker"); address && n < LINKS; address = strtok(NULL, ","), n++) {
    links[n] = connected(context, ZMQ_DEALER, address, 0);
    polled[n] = (zmq_pollitem_t){links[n], 0, ZMQ_POLLIN, 0};
    say_ready(NULL, links[n], 1);
  }
  for (;; tick(links, n)) {
    zmq_poll(polled, n, job_of ? 1 : 10);
    for (i = 0; i < n; i++) if (polled[i].revents) receive(links[i], act);
  }
}
