/* The smallest WMP/1 manager, written from specs/smallest-manager.md: cc -O2 -o manager manager.c -lzmq
   ./manager tcp://127.0.0.1:5570 [UNIT]     then type: submit NAME ROLE HEX [priority=N] */
#include "minimal.h"
enum { WORKERS = 256, ROLES = 16 };
typedef struct { char name[64], role[64]; u8 *payload; size_t n; long priority; u64 attempt, worker; int live; } job_t;
typedef struct { u8 name[255], to[2000], link[255], roles[1000]; size_t name_n, to_n, link_n, roles_n;
  u64 epoch, session, sent, received, ready, credit, slots, lock, window, offered, heard;
  char woken[ROLES][64]; u64 count[ROLES]; } worker; /* the WAKEs that no GIVE has answered */
static worker *workers[WORKERS];
static job_t *jobs; /* the number of a job is its place here, plus 1 */
static size_t jobs_n, session;
static void *router;
static const char slot[] = "\xa1\x65slots\x01";

static void say(int command, worker *w, u64 number_) { begin(command, w->to, w->to_n, number_, w->received, w->session); }
static int deliver(worker *w, int flags) {
  return zmq_send(router, w->link, w->link_n, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0 && end(router, flags) >= 0;
}
static void forget(int i) {
  for (size_t k = 0; k < jobs_n; k++) if (jobs[k].worker == workers[i]->session) jobs[k].worker = 0;
  free(workers[i]); workers[i] = NULL;
}
static int meet(span link, span from) { /* the place of a worker, -1 for an older epoch; a newer epoch is a new worker */
  u8 to[2000]; size_t to_n, epoch;
  span name = reversed(from, &epoch, to, &to_n);
  int i = 0, free_ = -1;
  for (; !bad && i < WORKERS && !(workers[i] && same(name, workers[i]->name, workers[i]->name_n)); i++)
    if (!workers[i]) free_ = i;
  if (bad || link.n > 255 || (i < WORKERS && epoch < workers[i]->epoch)) return -1;
  if (i < WORKERS && epoch > workers[i]->epoch) forget(free_ = i), i = WORKERS;
  if (i == WORKERS) {
    if ((i = free_) < 0) return -1;
    workers[i] = calloc(1, sizeof(worker)); workers[i]->epoch = epoch; workers[i]->session = ++session;
    memcpy(workers[i]->name, name.p, workers[i]->name_n = name.n);
  }
  memcpy(workers[i]->to, to, workers[i]->to_n = to_n); memcpy(workers[i]->link, link.p, workers[i]->link_n = link.n);
  workers[i]->heard = now();
  return i;
}
static job_t *next_job(span roles, job_t *not_this) { /* by priority, then as submitted (WMP-6.13) */
  job_t *best = NULL, *one;
  for (one = jobs; one < jobs + jobs_n; one++)
    if (one->live && !one->worker && one != not_this && (!best || one->priority > best->priority) && lists(roles, one->role)) best = one;
  return best;
}
static void give(worker *w, span *f) {
  u64 want = number(f[13]), lock = number(f[12]), i, room = w->ready ? w->slots + 2 * w->window : 512; /* WMP-4.16 */
  job_t *job, *next = NULL;
  for (i = 0; i < jobs_n; i++) if (jobs[i].live && jobs[i].worker == w->session && room) room--;
  for (i = 0; i < ROLES; i++) if (*w->woken[i] && lists(f[7], w->woken[i])) *w->woken[i] = 0, w->count[i] = 0;
  if (lock <= w->lock || !want) return;
  w->lock = lock;
  want = want < room ? want : room;
  if (slots_of(f[11]) && want) next = next_job(f[7], NULL);
  if (!next) { say(NO, w, w->sent + 1); field(12, lock); w->sent += deliver(w, 0); return; }
  while ((job = next)) { /* a TAKE for each job */
    next = --want ? next_job(f[7], job) : NULL;
    say(TAKE, w, w->sent + 1); words(10, job->role); key(11); raw(slot, 8); field(12, lock);
    if (next) flag(15);
    key(16); raw(me, me_n); job->attempt++;
    if (!deliver(w, ZMQ_SNDMORE)) return;
    o = 0; put(MAP, 3); put(UINT, 1); put(ARRAY, 1); put(UINT, job - jobs + 1); put(UINT, 2); put(UINT, job->attempt);
    put(UINT, 5); put(ARRAY, 1); out[o++] = 0xf6;
    zmq_send(router, out, o, ZMQ_DONTWAIT | ZMQ_SNDMORE); zmq_send(router, job->payload, job->n, ZMQ_DONTWAIT);
    job->worker = w->session; w->sent++;
  }
}
static void done(worker *w, row *r) {
  job_t *job = r->id <= jobs_n ? &jobs[r->id - 1] : NULL;
  if (!job || !job->live || job->worker != w->session || job->attempt != r->attempt) return; /* WMP-6.2 */
  job->worker = 0;
  if (r->outcome > 1) return; /* refused, handed back or lost: the job waits again */
  job->live = 0; printf("ended %s %s ", job->name, r->outcome ? "error" : "ok");
  for (size_t k = 0; k < r->payload.n; k++) printf("%02x", r->payload.p[k]);
  puts(r->payload.n ? "" : "-");
}
static void act(void *link, span *frames, int n) { /* nothing changes before all parts are read */
  static row ended[4096];
  span at[27] = {{0}}, to, from;
  int command = n < 2 ? 0 : parsed(frames[1], &to, &from, at, 27), i, k = 0, fresh = 1;
  worker *w = link;
  if (!command || bad || !(same(to, mine, mine_n) || (same(to, "\x80", 1) && (command == READY || command == PING)))) return;
  if (command == READY && (!number(at[4]) || !is(at[5], UINT) || at[7].n > 1000 || !is(at[8], MAP))) return;
  if (command == GIVE && (!number(at[12]) || !is(at[13], UINT) || (number(at[13]) && !is(at[11], MAP)))) return;
  if (command == READY || (command == GIVE && number(at[13]))) lists(at[7], ""), slots_of(at[command == READY ? 8 : 11]);
  if ((command == DONE || command == STATUS) && (!number(at[0]) || !number(at[2]) || !is(at[16], ARRAY))) return;
  if (command == DONE) k = rows(frames + 2, n - 2, ended, 4096);
  if (bad || !strchr("\x01\x03\x06\x07\x09\x0b", command) || (i = meet(frames[0], from)) < 0) return;
  w = workers[i]; if (number(at[6]) > w->window) w->window = number(at[6]);
  if (at[0].n) fresh = number(at[2]) == w->session && number(at[0]) == w->received + 1, w->received += fresh;
  if (command == READY && number(at[4]) > w->ready) {
    memcpy(w->roles, at[7].p, w->roles_n = at[7].n); w->ready = number(at[4]); w->credit = number(at[5]);
    w->slots = slots_of(at[8]); w->offered = w->heard; memset(w->woken, 0, sizeof w->woken); memset(w->count, 0, sizeof w->count);
  } else if (command == GIVE) give(w, at);
  else if (command == DONE && fresh && same(at[16], me, me_n)) for (i = 0; i < k; i++) done(w, &ended[i]);
  else if (command == BYE) forget(i);
  if (command == PING || !fresh) {
    say(PONG, w, 0);
    if (w->ready) field(4, w->ready), field(5, w->credit);
    if (w->lock) field(12, w->lock);
    field(19, 6 * unit); deliver(w, 0);
  }
}
static void wake(const char *role) { /* wake workers for the waiting jobs of a role, the oldest offers first (WMP-3.5) */
  u64 left = 0, count_; worker *w; int i, k, best;
  for (size_t j = 0; j < jobs_n; j++) left += jobs[j].live && !jobs[j].worker && !strcmp(jobs[j].role, role);
  for (i = 0; i < WORKERS; i++) for (k = 0; workers[i] && k < ROLES; k++)
    if (!strcmp(workers[i]->woken[k], role)) left = left > workers[i]->count[k] ? left - workers[i]->count[k] : 0;
  while (left) {
    for (best = -1, i = 0; i < WORKERS; i++) {
      if (!(w = workers[i]) || !w->credit || !w->slots || !lists((span){w->roles, w->roles_n}, role)) continue;
      for (k = 0; k < ROLES && strcmp(w->woken[k], role); k++);
      if (k == ROLES && (best < 0 || w->offered < workers[best]->offered)) best = i;
    }
    if (best < 0) return;
    w = workers[best]; count_ = w->credit < left ? w->credit : left; w->credit -= count_; left -= count_;
    for (k = 0; k < ROLES - 1 && *w->woken[k]; k++);
    strcpy(w->woken[k], role); w->count[k] = count_;
    say(WAKE, w, 0); field(9, count_); words(10, role); key(11); raw(slot, 8); deliver(w, 0);
  }
}
static void order(char *line) { /* a line of stdin */
  char *word = strtok(line, " "), *name = strtok(NULL, " "), *role = strtok(NULL, " "), *hex = strtok(NULL, " "), *option;
  job_t job = {0};
  if (!word || strcmp(word, "submit") || !hex || strlen(name) > 63 || strlen(role) > 63) return;
  while ((option = strtok(NULL, " ")))
    if (!strncmp(option, "priority=", 9)) job.priority = atol(option + 9);
    else { printf("unknown %s %.*s\n", name, (int)strcspn(option, "="), option); return; }
  strcpy(job.name, name); strcpy(job.role, role); job.live = 1; job.payload = malloc(strlen(hex) / 2 + 1);
  for (; *hex != '-' && sscanf(hex, "%2hhx", &job.payload[job.n]) == 1 && hex[1]; hex += 2) job.n++;
  jobs = realloc(jobs, (jobs_n + 1) * sizeof job); jobs[jobs_n++] = job; printf("submitted %s\n", name);
}
int main(int argc, char **argv) {
  static char line[1 << 20];
  zmq_pollitem_t polled[2] = {{NULL, 0, ZMQ_POLLIN, 0}, {NULL, 0, ZMQ_POLLIN, 0}};
  size_t n, j; int lines = 1, i;
  if (argc > 2) unit = atoi(argv[2]);
  introduce("manager"); setvbuf(stdout, NULL, _IOLBF, 0);
  router = polled[0].socket = connected(zmq_ctx_new(), ZMQ_ROUTER, argc > 1 ? argv[1] : "tcp://127.0.0.1:5570", 1);
  for (;;) {
    zmq_poll(polled, 1 + lines, 10);
    if (polled[0].revents) receive(router, act);
    if (lines && polled[1].revents) {
      for (n = 0; (lines = read(0, line + n, 1) == 1) && line[n] != '\n' && n < sizeof line - 1;) n++;
      line[n] = 0; order(line);
    }
    for (i = 0; i < WORKERS; i++) if (workers[i] && now() > workers[i]->heard + 6 * unit) forget(i);
    for (j = bad = 0; j < jobs_n; j++) if (jobs[j].live && !jobs[j].worker) wake(jobs[j].role);
  }
}
