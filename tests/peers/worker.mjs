#!/usr/bin/env node
// A worker of WMP/1 for Node.js, an opponent of the conformance kit: node worker.mjs tcp://127.0.0.1:5570[,tcp://…]
// Its habits: READY at each change of capacity (--often), PINGs with the list of held jobs (--list), DONE some time after the
// handler ended and after the report of the freed capacity (--late UNITS), a DONE for each job (--apart), jobs that wait here
// without resources (--window N), held GIVEs (--hold UNITS). It knows pairs of managers (section 17) and stores (section 14).

import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import { crc32 } from "node:zlib";
import { BYE, CANCEL, CANCELLED, DONE, FAILED, GIVE, LOST, NO, OK, OVERRUN, PING, PONG, READY, REFUSED, TAKE, WAKE, encode } from "./messages.mjs";
import { Link, Node, RESEND, hex, same } from "./node.mjs";

const MIN_SILENCE = 0.3, LOCK_TIMEOUT = 5, SEARCH = 10, BATCH = 1000, OVERRUN_GRACE = 5; // units, units, pings, jobs, units
const ROLES = {
  echo: async (payload) => payload,
  fail: async () => { throw new Error("this role always fails"); },
  slow: (payload, signal) => new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, Number(payload.toString() || NaN), payload);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); });
  }),
};

class Worker extends Node {
  constructor(endpoints, { slots, unit, habits }) {
    super(randomBytes(16), unit);
    Object.assign(this, { slots, habits, ready: 0, lock: 0, pings: 0, pingAt: 0, ending: false, jobs: new Map(), queue: [], answers: [], credit: -1, orphans: [] });
    this.acts = { [WAKE]: this.wake, [TAKE]: this.take, [NO]: this.no, [CANCEL]: this.cancel, [PONG]: this.pong };
    this.links = endpoints.map((endpoint) => new Link(endpoint, (link, frames) => this.receive(link, frames)));
    this.timer = setInterval(() => this.tick(), Math.min(20, unit / 20));
    this.tick();
  }

  // --- capacity: free slots, and free places of the window ---

  locks() { return [...this.managers.values()].flatMap((manager) => [...manager.locks.values()]); }

  free() {
    const running = [...this.jobs.values()].filter((job) => job.running).reduce((sum, job) => sum + job.slots, 0);
    return Math.max(0, this.slots - running - this.locks().reduce((sum, lock) => sum + lock.slots * lock.run, 0));
  }

  places() { // free places of the window
    const waiting = this.queue.length + this.locks().reduce((sum, lock) => sum + lock.wait, 0);
    return Math.max(0, this.habits.window - waiting);
  }

  capacity() { return this.ending ? 0 : this.free() + this.places(); }

  slotsFor(needs) {
    const others = [...needs].some(([resource, amount]) => resource !== "slots" && amount > 0);
    return others ? this.slots + 1 : Math.max(1, Number(needs.get("slots") ?? 0));
  }

  sayReady(credit, manager) {
    this.ready += 1;
    const window = credit ? Math.min(credit, this.places()) : 0;
    const fields = { ready: this.ready, credit, window, roles: Object.keys(ROLES), resources: { slots: this.slots } };
    for (const one of manager ? [manager] : this.managers.values()) one.ready = this.ready;
    if (manager) return this.send(manager, READY, fields);
    [this.greeted, this.credit] = [this.ready, credit];
    for (const link of this.links) link.send({ command: READY, to: [], from: this.me, fields });
  }

  offer(manager, want, slots, roles, needs, hold) {
    const run = Math.min(want, Math.floor(this.free() / slots)), wait = want - run, until = Date.now() + hold + LOCK_TIMEOUT * this.unit;
    this.lock += 1;
    manager.locks.set(this.lock, { number: this.lock, slots, run, wait, until, hold });
    const fields = { lock: this.lock, want, roles, needs, ...(wait && { window: wait }), ...(hold && { hold }) };
    this.send(manager, GIVE, fields);
  }

  share(changed) { // offer capacity, first to managers with a WAKE, the least recently served first (WMP-3.10)
    const granting = this.granting();
    if (granting.length > 1) for (const manager of granting) this.withdraw(manager); // WMP-5.4
    for (const manager of [...this.managers.values()].sort((one, other) => one.served - other.served)) {
      if (!manager.wake || !manager.link || this.ending) continue;
      const { count, role, needs } = manager.wake, slots = this.slotsFor(needs);
      const want = slots > this.slots || !(role in ROLES) ? 0 : Math.min(Number(count), Math.floor(this.free() / slots) + this.places());
      if (!want) continue;
      [manager.wake, manager.served] = [null, this.lock + 1];
      this.offer(manager, want, slots, [role], needs, 0);
    }
    const [only, other] = this.granting(), capacity = this.capacity();
    if (this.habits.hold && only?.link && !other && this.free() && !only.wake && !this.ending && !only.quiet) {
      return this.offer(only, capacity, 1, Object.keys(ROLES), new Map([["slots", 1]]), Math.round(this.habits.hold * this.unit));
    }
    if (changed && (capacity || (this.habits.often && capacity !== this.credit))) this.sayReady(capacity);
  }

  granting() { return [...this.managers.values()].filter((manager) => !manager.standby); } // WMP-17.3

  withdraw(manager) {
    for (const lock of manager.locks.values()) {
      if (!lock.hold) continue;
      Object.assign(lock, { hold: 0, until: Date.now() + LOCK_TIMEOUT * this.unit });
      this.send(manager, GIVE, { lock: lock.number, want: 0 });
    }
  }

  meet(key, epoch) {
    const manager = super.meet(key, epoch);
    Object.assign(manager, { asked: [], quiet: 0, standby: false, serves: [] });
    return manager;
  }

  // --- messages of managers ---

  wake(manager, { fields }) {
    const never = !(fields.role in ROLES) || this.slotsFor(fields.needs) > this.slots; // an older WAKE stays pending
    if (!never) manager.wake = fields;
    this.share(false);
    if (never || manager.wake) this.sayReady(0, manager); // the WAKE stays pending (WMP-3.9)
  }

  lend(manager, lock, slots) { // WMP-4.12: a late job runs on what another lock keeps, and a job of that lock waits instead
    const lender = lock ? undefined : [...manager.locks.values()].find((one) => one.run > 0 && one.slots >= slots);
    if (lender) [lender.run, lender.wait] = [lender.run - 1, lender.wait + 1];
    return lender !== undefined;
  }

  take(manager, { fields, columns }) {
    const { ids, attempts, payloads, left, expires, limits, checksums } = columns, slots = this.slotsFor(fields.needs);
    const lock = manager.locks.get(fields.lock), damaged = checksums?.some((sum, at) => sum !== null && Number(sum) !== crc32(payloads[at]));
    const until = (at) => Math.min(...[left?.[at], expires?.[at]].map((time) => (time === null || time === undefined ? Infinity : Date.now() + Number(time))));
    ids.forEach((id, at) => {
      const name = `${hex(encode(fields.manager))} ${id}`, held = this.jobs.get(name), attempt = attempts[at];
      const job = { name, manager, owner: fields.manager, keep: fields.keep, id, attempt, slots, role: fields.role, payload: payloads[at], limit: limits?.[at] ?? null, until: until(at), running: false, control: new AbortController() };
      if (held) { if (attempt > held.attempt) Object.assign(held, { attempt, manager }); return; } // WMP-4.14
      if (damaged) return this.answer(job, REFUSED, Buffer.from("a payload does not fit its checksum"));
      if (!Object.hasOwn(ROLES, fields.role) || slots > this.slots) return this.answer(job, REFUSED, Buffer.from("no such role, or too many needs"));
      if (left?.[at] === 0 || expires?.[at] === 0) return this.answer(job, CANCELLED);
      if (lock?.run > 0) lock.run -= 1;
      else if (lock?.wait > 0) lock.wait -= 1;
      else if (this.free() < slots && !this.places() && !this.lend(manager, lock, slots)) return this.answer(job, REFUSED, Buffer.from("no capacity"));
      this.jobs.set(name, job);
      if (this.free() >= slots) this.begin(job); else this.queue.push(job);
    });
    if (lock && !(fields.more && lock.run + lock.wait > 0)) manager.locks.delete(fields.lock);
    this.next();
    this.share(true); // report the rest before any DONE of these jobs (WMP-3.11)
  }

  no(manager, { fields, from, command }, link) {
    const lock = manager.locks.get(fields.lock), known = manager.locks.delete(fields.lock) || fields.lock <= this.lock;
    if (!known) return this.complain(link, [...from].reverse(), "unknown", command, { about_number: fields.number });
    if (lock?.hold) manager.quiet = Date.now() + this.unit / 2; // do not send another held GIVE at once
    this.next();
    this.share(lock !== undefined);
  }

  cancel(manager, { fields, columns }) {
    columns.ids.forEach((id, at) => {
      const job = this.jobs.get(`${hex(encode(fields.manager))} ${id}`);
      if (job?.attempt !== columns.attempts[at]) this.answer({ manager, owner: fields.manager, id, attempt: columns.attempts[at] }, CANCELLED);
      else if (!job.running) this.drop(job, CANCELLED);
      else if (!fields.unstarted) job.control.abort();
    });
  }

  pong(manager, { fields }) {
    if (fields.challenge !== undefined) this.send(manager, PING, { answer: fields.challenge });
    manager.expire = Math.max(MIN_SILENCE * this.unit, Number(fields.expire)); // WMP-9.15
    if (manager.standby && !fields.standby) for (const other of this.managers.values()) { // WMP-17.4
      this.withdraw(other);
      if (other !== manager) other.locks.clear();
    }
    [manager.standby, manager.serves] = [fields.standby ?? false, (fields.serves ?? []).slice(0, 4)];
    for (const owner of manager.serves) this.adopt(manager, owner);
    const asked = manager.asked.shift() ?? 0, before = manager.locks.size; // asked: the newest lock when the answered PING was sent
    for (const number of [...manager.locks.keys()]) if (number <= asked && number > (fields.lock ?? 0)) manager.locks.delete(number);
    const capacity = this.capacity(), differs = fields.ready !== manager.ready || (fields.credit ?? 0) < capacity;
    this.share(false);
    if (manager.locks.size < before) return this.share(true);
    if (differs && !manager.wake && !manager.locks.size) this.sayReady(capacity, manager);
  }

  forget(manager) { // drop its locks and its jobs, without DONE (WMP-7.6, WMP-9.14)
    const { stream, key } = manager, owners = this.orphan(manager);
    if (stream && stream.sent + stream.received > 0) this.left.set(`${key} ${manager.epoch}`, stream.session);
    Object.assign(manager, { stream: null, wake: null, locks: new Map(), asked: [] });
    for (const job of [...this.jobs.values()].filter((one) => one.manager === manager)) this.abandon(job);
    this.answers = this.answers.filter((row) => row.manager !== manager);
    this.pings = 0;
    for (const other of this.managers.values()) if (other !== manager && owners.some((owner) => serves(other, owner))) this.ask(other); // WMP-14.10
  }

  abandon(job) {
    job.control.abort();
    this.jobs.delete(job.name);
    this.queue = this.queue.filter((one) => one !== job);
  }

  // --- jobs of stores (section 14) ---

  acknowledge(stream, ack, kept) { // keep the results of stored jobs until they are stored (WMP-14.4)
    const acknowledged = ack <= stream.sent ? stream.unacknowledged.filter(({ number }) => number <= ack) : [];
    stream.stored = [...(stream.stored ?? []), ...acknowledged].filter(({ number }) => number > (kept ?? ack));
    super.acknowledge(stream, ack);
  }

  orphan(manager) { // keep the stored jobs and results of a manager that is forgotten; return their owners (WMP-14.5)
    const jobs = [...this.jobs.values()].filter((job) => job.manager === manager && job.keep);
    const sent = [...(manager.stream?.stored ?? []), ...(manager.stream?.unacknowledged ?? [])];
    const results = sent.flatMap(({ fields, columns, keep }) => columns.ids.map((id, at) => ({ owner: fields.manager, keep, id, attempt: columns.attempts[at], outcome: columns.outcomes[at], payload: columns.payloads[at], text: columns.texts?.[at] ?? null })));
    const rows = [...results, ...this.answers.filter((row) => row.manager === manager)].filter(({ keep }) => keep);
    for (const one of [...jobs, ...rows]) Object.assign(one, { manager: null, droppedAt: Date.now() + Number(one.keep) });
    this.orphans.push(...rows);
    this.answers = this.answers.filter((row) => row.manager !== null);
    return [...jobs, ...rows].map(({ owner }) => owner);
  }

  adopt(manager, owner) { // answer the orphaned jobs of a store to this manager (WMP-14.6, WMP-14.9)
    const theirs = (one) => one.manager === null && same(one.owner, owner), jobs = [...this.jobs.values()].filter(theirs), rows = this.orphans.filter(theirs);
    if (!manager.stream || jobs.length + rows.length === 0) return;
    this.orphans = this.orphans.filter((row) => !theirs(row));
    for (const one of [...jobs, ...rows]) Object.assign(one, { manager, at: 0 });
    this.answers.push(...rows);
    this.flush(true);
    this.list(manager, owner);
  }

  list(manager, owner) { // send PING with the jobs of a store that are not answered (WMP-14.9)
    const rows = [...this.jobs.values(), ...this.answers].filter((one) => one.manager === manager && same(one.owner, owner)).slice(0, 4096);
    const fields = { manager: owner, sent: manager.stream.sent, ...(!rows.length && { idle: true }) };
    manager.asked.push(this.lock);
    this.send(manager, PING, fields, rows.length ? { ids: rows.map(({ id }) => id), attempts: rows.map(({ attempt }) => attempt) } : undefined);
  }

  // --- jobs ---

  next() {
    while (this.queue.length && this.free() >= this.queue[0].slots) this.begin(this.queue.shift());
  }

  async begin(job) {
    [job.running, job.begun] = [true, true];
    let outcome = OK, result, late = false;
    const stop = () => { late = true; job.control.abort(); };
    const timers = job.limit === null ? [] : [setTimeout(stop, Number(job.limit)), setTimeout(() => this.drop(job, OVERRUN, Buffer.from("ran on after its limit")), Number(job.limit) + OVERRUN_GRACE * this.unit)];
    try { result = await ROLES[job.role](job.payload, job.control.signal); } catch (error) {
      outcome = late ? OVERRUN : job.control.signal.aborted ? CANCELLED : FAILED;
      result = outcome === FAILED ? encode([error.name, error.message, error.stack ?? ""]) : Buffer.from(late ? "ran for longer than its limit" : "");
    }
    timers.forEach(clearTimeout);
    job.running = false;
    if (this.jobs.get(job.name) === job) this.drop(job, outcome, result);
    else { this.next(); this.share(true); }
  }

  drop(job, outcome, result) { // end a job, and release its slots
    if (this.jobs.get(job.name) !== job) return;
    this.jobs.delete(job.name);
    this.queue = this.queue.filter((one) => one !== job);
    this.answer(job, outcome, result, outcome === CANCELLED && job.begun ? "cancelled" : null); // WMP-6.35
    if (!this.habits.late) this.flush();
    this.next();
    this.share(true);
  }

  answer({ manager, owner, keep, droppedAt, id, attempt }, outcome, payload = Buffer.alloc(0), text = null) {
    (manager ? this.answers : this.orphans).push({ manager, owner, keep, droppedAt, id, attempt, outcome, payload, text, at: Date.now() + this.habits.late * this.unit });
    if (!this.habits.late) setImmediate(() => this.flush());
  }

  flush(all = false) {
    const due = this.answers.filter(({ at }) => all || at <= Date.now()), groups = new Map();
    this.answers = this.answers.filter((row) => !due.includes(row));
    for (const row of due) {
      const name = `${row.manager.key} ${hex(encode(row.owner))}`;
      groups.set(name, [...(groups.get(name) ?? []), row]);
    }
    for (const rows of groups.values()) {
      const [{ manager, owner }] = rows;
      while (rows.length) {
        const batch = rows.splice(0, this.habits.apart ? 1 : BATCH), column = (word) => batch.map((row) => row[word]);
        const columns = { ids: column("id"), attempts: column("attempt"), outcomes: column("outcome"), payloads: column("payload"), checksums: column("payload").map((payload) => crc32(payload)) };
        if (batch.some(({ text }) => text)) columns.texts = column("text");
        this.sendNumbered(manager, DONE, { manager: owner }, columns);
        if (manager.stream) manager.stream.unacknowledged.at(-1).keep = batch[0].keep;
      }
    }
  }

  others(columns, text) { // the columns of other DONEs: one for each job, or DONE `lost` (WMP-7.11)
    if (columns.ids.length > 1) return columns.ids.map((_, at) => Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, [column[at]]])));
    const cause = Buffer.from(`the manager refused the result: ${text}`);
    return [{ ...columns, outcomes: [LOST], payloads: [cause], checksums: [crc32(cause)] }];
  }

  // --- time ---

  ask(manager) { // send PING, with the list of the held jobs if that is a habit (WMP-9.9)
    if (manager.stream) for (const owner of manager.serves) this.list(manager, owner);
    manager.asked.push(this.lock);
    if (!this.habits.list || !manager.stream) return this.send(manager, PING);
    const kept = manager.stream.unacknowledged.flatMap(({ columns }) => columns.ids.map((id, at) => ({ id, attempt: columns.attempts[at] })));
    const mine = [...this.jobs.values(), ...this.answers].filter((row) => row.manager === manager);
    if (mine.some(({ owner }) => hex(owner[0]) !== manager.key)) return this.send(manager, PING);
    const held = [...new Map([...kept, ...mine].map(({ id, attempt }) => [id, attempt]))].slice(0, 4096);
    if (!held.length) return this.send(manager, PING, { idle: true });
    this.send(manager, PING, {}, { ids: held.map(([id]) => id), attempts: held.map(([, attempt]) => attempt) });
  }

  tick() {
    const now = Date.now();
    let changed = false, interval = this.habits.list ? this.unit / 2 : this.unit;
    for (const manager of [...this.managers.values()]) {
      interval = Math.min(interval, manager.expire / 3);
      for (const [number, lock] of manager.locks) {
        if (now <= lock.until && manager.link) continue;
        manager.locks.delete(number);
        changed = true;
        if (manager.link) this.sayReady(this.capacity(), manager); // WMP-4.11
      }
      if (now > manager.stream?.unacknowledged[0]?.at + RESEND * this.unit) this.resendLate(manager);
      if (manager.claim && now > Math.min(manager.claim.until, manager.heard + manager.expire)) this.admit(manager);
      else if (now > manager.heard + manager.expire) { this.part(manager.key); changed = true; }
      if (manager.quiet && now > manager.quiet) [manager.quiet, changed] = [0, true];
    }
    for (const job of this.queue.filter(({ until }) => until <= now)) this.drop(job, CANCELLED);
    for (const job of [...this.jobs.values()].filter((one) => one.manager === null && one.droppedAt <= now)) this.abandon(job);
    this.orphans = this.orphans.filter(({ droppedAt }) => droppedAt > now);
    if (this.links.filter((link) => link.replaceIfSilent(Math.min(this.unit, 2 * interval), this.unit)).length) this.pings = 0;
    this.flush();
    this.next();
    this.share(changed);
    if (now < this.pingAt && this.pings) return;
    if (!this.pings) this.sayReady(this.capacity()); // there is a new link, or a manager must be found again
    const known = [...this.managers.values()].map((manager) => manager.link);
    for (const link of this.links) {
      if (!known.includes(link) || this.pings % SEARCH === 0) link.send({ command: PING, to: [], from: this.me, fields: {} });
    }
    for (const manager of this.managers.values()) this.ask(manager);
    this.pingAt = now + interval;
    this.pings += 1;
  }

  async end(status, text) { // hand back what is held, and send BYE (WMP-9.10)
    this.ending = true;
    if (text) console.error(text);
    for (const job of this.jobs.values()) this.answer(job, CANCELLED, undefined, job.begun ? "the worker ends" : null);
    this.jobs.clear();
    this.flush(true);
    if (!status) for (const manager of this.managers.values()) this.send(manager, BYE);
    clearInterval(this.timer);
    setTimeout(() => process.exit(status), 200);
  }
}

const serves = (manager, owner) => manager.serves.some((store) => same(store, owner));

const options = Object.fromEntries(["slots", "unit", "window", "late", "hold"].map((name) => [name, { type: "string", default: { slots: "1", unit: "1000" }[name] ?? "0" }]));
for (const name of ["often", "list", "apart"]) options[name] = { type: "boolean", default: false };
const { values, positionals: [endpoints] } = parseArgs({ options, allowPositionals: true });
const habits = { window: Number(values.window), late: Number(values.late), hold: Number(values.hold), often: values.often, list: values.list, apart: values.apart };
const worker = new Worker(endpoints.split(","), { slots: Number(values.slots), unit: Number(values.unit), habits });
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => worker.end(0));
