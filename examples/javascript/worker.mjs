#!/usr/bin/env node
// A worker of WMP/1 for Node.js, written from specs/wmp.md alone: node worker.mjs tcp://127.0.0.1:5570[,tcp://…]
// Options: --slots 4, --identity NAME, --unit 1000 (milliseconds that one second of the timers takes).
// Its roles: echo returns the payload, fail always fails, slow takes as many milliseconds as its payload says.

import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import { crc32 } from "node:zlib";
import { BYE, CANCEL, CANCELLED, DONE, FAILED, GIVE, LOST, NO, OK, OVERRUN, PING, PONG, READY, REFUSED, TAKE, WAKE, encode } from "./messages.mjs";
import { Link, Node, RESEND, hex } from "./node.mjs";

const MIN_SILENCE = 0.3, LOCK_TIMEOUT = 5, SEARCH = 10, BATCH = 1000, MAX_KEPT = 1 << 28; // in units, units, pings, jobs, bytes
const ROLES = {
  echo: async (payload) => payload,
  fail: async () => { throw new Error("the role fail always fails"); },
  slow: (payload, signal) => new Promise((resolve, reject) => {
    const milliseconds = Number(payload.toString() || NaN);
    if (!(milliseconds >= 0)) throw new TypeError("the payload is not a number of milliseconds");
    const timer = setTimeout(resolve, milliseconds, payload);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); });
  }),
};


class Worker extends Node {
  constructor(endpoints, slots, identity, unit) {
    super(identity, unit);
    Object.assign(this, { slots, ready: 0, lock: 0, pings: 0, pingAt: 0, ending: false, jobs: new Map(), answers: new Map() });
    this.acts = { [WAKE]: this.wake, [TAKE]: this.take, [NO]: this.no, [CANCEL]: this.cancel, [PONG]: this.pong };
    this.links = endpoints.map((endpoint) => new Link(endpoint, (link, frames) => this.receive(link, frames)));
    this.timer = setInterval(() => this.tick(), Math.min(20, unit / 20));
    this.tick();
  }

  sayReady(credit, manager) { // send READY to one manager, or without a receiver to all managers behind the links
    this.ready += 1;
    const fields = { ready: this.ready, credit, roles: Object.keys(ROLES), resources: { slots: this.slots } };
    for (const one of manager ? [manager] : this.managers.values()) one.ready = this.ready;
    if (manager) return this.send(manager, READY, fields);
    this.greeted = this.ready;
    for (const link of this.links) link.send({ command: READY, to: [], from: this.me, fields });
  }

  // --- capacity ---

  room() {
    let used = 0, kept = 0;
    for (const job of this.jobs.values()) used += job.slots;
    for (const { locks, stream } of this.managers.values()) {
      for (const lock of locks.values()) used += lock.slots * lock.jobs;
      kept += stream?.size ?? 0;
    }
    return this.ending || kept > MAX_KEPT ? 0 : Math.max(0, this.slots - used);
  }

  slotsFor(needs) { // the slots of one job: at least one, and too many if its needs are impossible
    const others = [...needs].some(([resource, amount]) => resource !== "slots" && amount > 0);
    return others ? this.slots + 1 : Math.max(1, Number(needs.get("slots") ?? 0));
  }

  shareRoom(grew) { // offer free slots, first to managers with a WAKE, the least recently served first (WMP-3.10)
    for (const manager of [...this.managers.values()].sort((one, other) => one.served - other.served)) {
      if (!manager.wake || !manager.link) continue;
      const { count, role, needs } = manager.wake, slots = this.slotsFor(needs);
      const want = Math.min(Number(count), Math.floor(this.room() / slots));
      if (!want) continue;
      this.lock += 1;
      manager.locks.set(this.lock, { slots, jobs: want, until: Date.now() + LOCK_TIMEOUT * this.unit });
      this.send(manager, GIVE, { lock: this.lock, want, roles: [role], needs });
      [manager.wake, manager.served] = [null, this.lock];
    }
    if (grew && this.room()) this.sayReady(this.room());
  }

  // --- messages of managers ---

  wake(manager, { fields }) {
    const fits = Object.hasOwn(ROLES, fields.role) && this.slotsFor(fields.needs) <= this.slots;
    if (fits) manager.wake = fields;
    this.shareRoom(false);
    if (manager.wake || !fits) this.sayReady(0, manager); // a WAKE that fits stays pending (WMP-3.9)
  }

  take(manager, { fields, columns }) {
    const { ids, attempts, payloads, left, expires, limits, checksums } = columns, slots = this.slotsFor(fields.needs), lock = manager.locks.get(fields.lock);
    if (lock && fields.more && lock.jobs > ids.length) lock.jobs -= ids.length; else manager.locks.delete(fields.lock);
    const damaged = checksums?.some((sum, at) => sum !== null && Number(sum) !== crc32(payloads[at])); // WMP-2.12
    ids.forEach((id, at) => {
      const name = `${hex(encode(fields.manager))} ${id}`, held = this.jobs.get(name), attempt = attempts[at];
      const job = { manager, owner: fields.manager, id, attempt, slots, control: new AbortController() };
      if (held) { if (attempt > held.attempt) Object.assign(held, { attempt, manager }); } // WMP-4.14
      else if (damaged) this.answer(job, REFUSED, Buffer.from("a payload does not fit its checksum"));
      else if (!Object.hasOwn(ROLES, fields.role) || slots > this.room()) this.answer(job, REFUSED, Buffer.from("no such role, or no room"));
      else if (left?.[at] === 0 || expires?.[at] === 0) this.answer(job, CANCELLED); // WMP-6.7, WMP-6.19
      else { this.jobs.set(name, job); this.run(name, job, ROLES[fields.role], payloads[at], limits?.[at]); }
    });
    this.shareRoom(true); // report the rest before any DONE of these jobs (WMP-3.11)
  }

  no(manager, { fields, from, command }, link) {
    const known = manager.locks.delete(fields.lock) || fields.lock <= this.lock;
    if (!known) this.complain(link, [...from].reverse(), "unknown", command, { about_number: fields.number });
  }

  cancel(manager, { fields, columns }) {
    columns.ids.forEach((id, at) => {
      const job = this.jobs.get(`${hex(encode(fields.manager))} ${id}`);
      if (job?.attempt !== columns.attempts[at]) this.answer({ manager, owner: fields.manager, id, attempt: columns.attempts[at] }, CANCELLED);
      else if (!fields.unstarted) job.control.abort();
    });
  }

  pong(manager, { fields }) {
    if (fields.challenge !== undefined) this.send(manager, PING, { answer: fields.challenge });
    const room = this.room();
    manager.expire = Math.max(MIN_SILENCE * this.unit, Number(fields.expire)); // WMP-9.15
    const differs = fields.ready !== manager.ready || (fields.credit ?? 0) < room;
    if (differs && !manager.wake && !manager.locks.size) this.sayReady(room, manager);
  }

  forget(manager) { // drop its locks and its jobs, without DONE (WMP-7.6, WMP-9.14)
    const { stream, key } = manager;
    if (stream && stream.sent + stream.received > 0) this.left.set(`${key} ${manager.epoch}`, stream.session);
    Object.assign(manager, { stream: null, wake: null, locks: new Map() });
    for (const [name, job] of this.jobs) if (job.manager === manager) { job.control.abort(); this.jobs.delete(name); }
    for (const name of this.answers.keys()) if (name.startsWith(key)) this.answers.delete(name);
    this.pings = 0;
  }

  // --- jobs ---

  async run(name, job, handler, payload, limit) {
    let outcome = OK, result, late = false;
    const timer = limit == null ? null : setTimeout(() => { late = true; job.control.abort(); }, Number(limit)); // WMP-6.21
    try { result = await handler(payload, job.control.signal); } catch (error) {
      outcome = late ? OVERRUN : job.control.signal.aborted ? CANCELLED : FAILED;
      result = outcome === FAILED ? encode([error.name, error.message, error.stack ?? ""]) : Buffer.from(late ? "ran for longer than its limit" : "");
    }
    clearTimeout(timer);
    if (this.jobs.get(name) !== job) return; // the manager of the job was forgotten
    this.jobs.delete(name);
    this.answer(job, outcome, result);
  }

  answer({ manager, owner, id, attempt }, outcome, payload = Buffer.alloc(0)) { // keep an answer until the end of this turn, when all answers are sent
    const name = `${manager.key} ${hex(encode(owner))}`;
    if (!this.answers.has(name)) this.answers.set(name, { manager, owner, rows: [] });
    this.answers.get(name).rows.push([id, attempt, outcome, payload]);
    this.flushing ||= setImmediate(() => { this.flushing = null; this.flush(); this.shareRoom(true); });
  }

  flush() {
    for (const { manager, owner, rows } of this.answers.values()) {
      while (rows.length) {
        const batch = rows.splice(0, BATCH), column = (at) => batch.map((row) => row[at]);
        const columns = { ids: column(0), attempts: column(1), outcomes: column(2), payloads: column(3), checksums: column(3).map((payload) => crc32(payload)) };
        this.sendNumbered(manager, DONE, { manager: owner }, columns);
      }
    }
    this.answers.clear();
  }

  others(columns, text) { // the columns of other DONEs: one for each job, or DONE `lost` (WMP-7.11)
    if (columns.ids.length > 1) return columns.ids.map((_, at) => Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, [column[at]]])));
    const cause = Buffer.from(`the manager refused the result: ${text}`);
    return [{ ...columns, outcomes: [LOST], payloads: [cause], checksums: [crc32(cause)] }];
  }

  // --- time ---

  tick() {
    const now = Date.now();
    let grew = false, interval = this.unit;
    for (const manager of [...this.managers.values()]) {
      interval = Math.min(interval, manager.expire / 3);
      for (const [number, lock] of manager.locks) if (now > lock.until || !manager.link) grew = manager.locks.delete(number);
      if (now > manager.stream?.unacknowledged[0]?.at + RESEND * this.unit) this.resendLate(manager);
      if (manager.claim && now > Math.min(manager.claim.until, manager.heard + manager.expire)) this.admit(manager);
      else if (now > manager.heard + manager.expire) this.part(manager.key);
    }
    if (this.links.filter((link) => link.replaceIfSilent(interval, this.unit)).length) this.pings = 0;
    this.flush();
    this.shareRoom(grew);
    if (now < this.pingAt && this.pings) return;
    if (!this.pings) this.sayReady(this.room()); // there is a new link, or a manager must be found again
    const known = [...this.managers.values()].map((manager) => manager.link);
    for (const link of this.links) {
      if (!known.includes(link) || this.pings % SEARCH === 0) link.send({ command: PING, to: [], from: this.me, fields: {} });
    }
    for (const manager of this.managers.values()) this.send(manager, PING);
    this.pingAt = now + interval;
    this.pings += 1;
  }

  async end(status, text) { // hand back the held jobs, and send BYE (WMP-9.10)
    this.ending = true;
    if (text) console.error(text);
    for (const job of this.jobs.values()) this.answer(job, CANCELLED);
    this.jobs.clear();
    this.flush();
    if (!status) for (const manager of this.managers.values()) this.send(manager, BYE);
    clearInterval(this.timer);
    setTimeout(() => process.exit(status), 200); // the last messages have been written by then
  }
}

try {
  const options = { slots: { type: "string", default: "4" }, identity: { type: "string" }, unit: { type: "string", default: "1000" } };
  const { values, positionals: [endpoints] } = parseArgs({ options, allowPositionals: true });
  const identity = values.identity ? Buffer.from(values.identity) : randomBytes(16);
  const worker = new Worker(endpoints.split(","), Number(values.slots), identity, Number(values.unit));
  for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => worker.end(0));
} catch (error) {
  console.error(`worker.mjs tcp://HOST:PORT[,…] [--slots N] [--identity NAME] [--unit MS]: ${error.message}`);
  process.exit(2);
}
