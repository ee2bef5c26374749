#!/usr/bin/env node
// A manager of WMP/1 for Node.js, an opponent of the conformance kit: node manager.mjs tcp://127.0.0.1:5570 [--unit MS]
// Its habits: it grants jobs in several TAKEs (--parts N jobs each), it gives a refused job again after any message about
// capacity, and it sends PONG without a PING (--often). It dials in to devices (--connect ADDRESS,…). It reads orders from stdin, as specs/testee.md defines them.

import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import { crc32 } from "node:zlib";
import { BYE, CANCEL, DONE, ERROR, FAILED, GIVE, LOST, NO, OK, OVERRUN, PING, PONG, READY, REFUSED, Refused, STATUS, TAKE, WAKE, decodeMessage, encode, encodeMessage } from "./messages.mjs";
import { Dealer, Router } from "./zmtp.mjs";

const EXPIRE = 6, WAKE_TIMEOUT = 0.25, RESEND = 3, MARGIN = 0.5, NEEDS = new Map([["slots", 1]]), MOST = 512; // units, jobs
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const same = (one, other) => encode(one).equals(encode(other));
const now = () => performance.now();
const least = (...times) => Math.min(...times.filter((time) => time !== null && time !== undefined), Infinity);

class Manager {
  constructor(endpoint, unit, { parts, often, connect }) {
    Object.assign(this, { unit, parts, often, me: [randomBytes(16), Date.now()], workers: new Map(), sessions: 0, challenges: 0 });
    Object.assign(this, { jobs: new Map(), numbers: new Map(), last: 0, front: 0, back: 0, roles: new Map(), turns: 0, departed: new Map() });
    this.acts = { [READY]: this.ready, [GIVE]: this.give, [DONE]: this.done, [STATUS]: this.status, [PING]: this.ping, [BYE]: this.bye };
    this.router = new Router(endpoint, { message: (link, frames) => this.receive(link, frames) });
    this.dealers = connect.map((address) => this.dial(address));
    setInterval(() => { for (const dealer of this.dealers) this.announce(dealer, PONG, { expire: EXPIRE * this.unit }); }, 0.9 * unit);
    this.timer = setInterval(() => this.tick(), Math.min(20, unit / 20));
  }

  // --- sending ---

  transmit(link, message) {
    if (!(link instanceof Dealer)) return this.router.send(link, encodeMessage(message));
    link.connection?.send(encodeMessage(message));
    return link.connection !== null;
  }

  // --- devices to which the manager dials in (WMP-8.11) ---

  dial(address) {
    const dealer = new Dealer({ ready: () => this.announce(dealer, PONG, { expire: EXPIRE * this.unit }) });
    dealer.connect(address);
    this.hear(dealer);
    return dealer;
  }

  async hear(dealer) {
    for await (const frames of dealer) this.receive(dealer, frames);
  }

  announce(dealer, command, fields) { this.transmit(dealer, { command, to: [], from: this.me, fields }); }

  leave() { for (const dealer of this.dealers) this.announce(dealer, BYE, {}); }

  // --- messages to workers ---

  send(worker, command, fields = {}, columns = undefined) {
    if (worker.link === null) return false;
    const stamped = { ...fields, session: worker.session, ack: worker.received };
    const left = this.transmit(worker.link, { command, to: worker.to, from: this.me, fields: stamped, columns });
    if (!left) this.unreachable(worker);
    return left;
  }

  sendNumbered(worker, command, fields, columns) {
    const kept = { number: ++worker.sent, at: now(), left: false, command, fields: { ...fields, number: worker.sent }, columns };
    worker.kept.push(kept);
    kept.left = this.send(worker, command, kept.fields, columns);
    worker.gone = kept.left ? Math.max(worker.gone, kept.number) : worker.gone;
  }

  resend(worker) {
    worker.resends += 1;
    for (const kept of [...worker.kept]) {
      kept.at = now();
      if (this.send(worker, kept.command, kept.fields, kept.columns)) worker.gone = Math.max(worker.gone, kept.number);
    }
  }

  complain(link, to, code, command, more = {}) {
    const about = { ...(command !== null && command !== undefined && { about: command }), ...(code === "version" && { versions: [1] }) };
    if (command !== ERROR) this.transmit(link, { command: ERROR, to, from: this.me, fields: { code, ...about, ...more } });
  }

  pong(worker, more = {}) {
    const { ready, credit, lock } = worker;
    this.send(worker, PONG, { expire: EXPIRE * this.unit, ...(ready && { ready, credit }), ...(lock && { lock }), ...more });
  }

  // --- receiving ---

  receive(link, frames) {
    let message;
    try { message = decodeMessage(frames); } catch (refused) {
      if (!(refused instanceof Refused)) throw refused;
      const place = Array.isArray(refused.to) && same(refused.to, [...this.me].reverse()) ? refused.place : {};
      return this.complain(link, refused.back, refused.code, refused.command, { text: refused.message, ...place });
    }
    const { command, to, from, fields } = message, back = [...from].reverse(), key = hex(from[0]), act = this.acts[command];
    if (command === ERROR) return this.error(link, message);
    if (!act) return this.complain(link, back, "direction", command);
    if (to.length && !same(to, [...this.me].reverse())) { // WMP-2.7
      const other = to.length === 2 && same(to[1], this.me[0]);
      return this.complain(link, back, other ? "superseded" : "misrouted", command, { about_peer: [to.at(-1), to.at(-2)] });
    }
    if (!this.admits(link, message, back)) return;
    const worker = this.workers.get(key) ?? this.meet(from[0], from[1]);
    if (fields.answer !== undefined && worker.claim?.number === fields.answer) this.refuse(worker);
    const moved = worker.link !== null && (worker.link !== link || !same(worker.to, back)), found = worker.link === null && worker.heard > 0;
    Object.assign(worker, { link, to: back, heard: now() });
    if (command === PING && to.length && fields.session === undefined && fields.answer === undefined && worker.sent + worker.received) this.renew(worker);
    const current = fields.session === worker.session;
    if (fields.number !== undefined && !current) return this.pong(worker); // WMP-7.7
    if (current) this.acknowledge(worker, fields.ack ?? 0);
    if (moved || found || (current && fields.again)) this.resend(worker);
    if (fields.number !== undefined) {
      if (fields.number !== worker.received + 1) { // WMP-7.1
        const gap = fields.number > worker.received && !worker.gap;
        worker.gap ||= gap;
        return gap ? this.pong(worker, { again: true }) : undefined;
      }
      Object.assign(worker, { received: fields.number, gap: false });
    }
    act.call(this, worker, message, current);
    this.share();
  }

  acknowledge(worker, ack) {
    while (ack <= worker.sent && worker.kept[0]?.number <= ack) {
      worker.kept.shift();
      worker.resends = 0;
    }
  }

  // --- the holder of an identity (section 15) ---

  admits(link, message, back) {
    const worker = this.workers.get(hex(message.from[0])), epoch = message.from[1];
    if (!worker && this.departed.get(hex(message.from[0])) === epoch) { // after BYE (WMP-9.11)
      if (message.command !== READY && message.command !== PING) return false;
      this.departed.delete(hex(message.from[0]));
    }
    if (!worker || (worker.link === link && same(worker.to, back))) return true;
    const route = worker.link === link && same(worker.to.slice(0, -2), back.slice(0, -2));
    if (worker.link === null || (route && epoch > worker.epoch)) {
      if (message.command === BYE && epoch !== worker.epoch) return false; // WMP-15.7
      worker.claim = null;
      if (epoch !== worker.epoch) this.part(worker);
      return true;
    }
    if (worker.claim) return false;
    this.challenges += 1;
    worker.claim = { link, back, epoch, command: message.command, number: this.challenges, until: now() + this.unit };
    this.pong(worker, { challenge: this.challenges });
    return false;
  }

  refuse(worker) {
    const { link, back, epoch, command } = worker.claim;
    worker.claim = null;
    if (epoch !== worker.epoch) this.complain(link, back, "superseded", command, { about_peer: [back.at(-1), epoch] });
  }

  admit(worker) {
    const { claim } = worker;
    worker.claim = null;
    if (!claim) return;
    if (claim.command === BYE) return claim.epoch === worker.epoch ? this.part(worker) : undefined; // WMP-15.7
    if (claim.epoch !== worker.epoch) this.part(worker);
    const holder = claim.epoch === worker.epoch ? worker : this.meet(worker.identity, claim.epoch);
    Object.assign(holder, { link: claim.link, to: claim.back, heard: now() });
    this.resend(holder);
    this.pong(holder, { again: true });
  }

  error(link, { to, from, fields }) {
    const { code } = fields, refusal = code === "malformed" || code === "limit";
    const about = fields.about_peer ?? (refusal ? from.slice(0, 2) : undefined);
    if (!about || !same(to, [...this.me].reverse())) return;
    if (code === "superseded" && same(about, this.me)) {
      const worker = this.workers.get(hex(from[0]));
      if (worker && worker.link === link && same(worker.to, [...from].reverse())) this.part(worker);
      return this.share();
    }
    const worker = this.workers.get(hex(about[0])), hops = [...from].reverse().slice(0, -2);
    if (worker?.epoch !== about[1] || worker.link !== link) return;
    if (hops.length > worker.to.length - 2 || !same(worker.to.slice(0, hops.length), hops)) return;
    if (refusal && fields.session === worker.session) {
      const kept = worker.kept.find((one) => one.number === fields.about_number && one.command === fields.about);
      if (kept) this.replace(worker, kept, fields.text ?? "");
    }
    if (["superseded", "unreachable", "misrouted"].includes(code)) this.unreachable(worker);
    this.share();
  }

  replace(worker, kept, text, refused = true) { // send another message in place of one that the worker never accepts (WMP-7.11)
    if (kept.command !== TAKE || kept.replaced) {
      this.renew(worker);
      return this.pong(worker);
    }
    const { ids } = kept.columns, { lock, number } = kept.fields;
    const jobs = ids.map((id) => this.jobs.get(Number(id))).filter((job) => job?.holder === worker && job.take === kept.number);
    Object.assign(kept, { command: NO, fields: { lock, number }, columns: undefined, replaced: true });
    worker.gives.delete(lock);
    this.resend(worker);
    for (const job of jobs) {
      job.alone = true;
      if (refused && ids.length > 1) job.begun -= 1; // WMP-6.34: without an ack the jobs may have begun
    }
    if (ids.length > 1) this.requeue(jobs.map(({ id }) => id));
    else this.lose(jobs.map(({ id }) => id), `TAKE was refused: ${text}`);
    this.share();
  }

  unreachable(worker) { // forget the route of a worker, and nothing else (WMP-9.12)
    if (worker.link === null) return;
    Object.assign(worker, { link: null, credit: 0 });
    worker.woken.clear();
    for (const lock of [...worker.gives.keys()]) this.close(worker, lock);
    this.admit(worker);
  }

  // --- sessions ---

  meet(identity, epoch) {
    const worker = { key: hex(identity), identity, epoch, link: null, to: [], heard: 0, claim: null, ready: 0, credit: 0, window: 0, offered: 0 };
    Object.assign(worker, { roles: [], resources: new Map(), woken: new Map(), lock: 0, gives: new Map(), leases: new Set(), reports: 0 });
    this.workers.set(worker.key, worker);
    this.renew(worker);
    return worker;
  }

  renew(worker) { // begin another session: the leases and open GIVEs of the last session are lost
    this.lose([...worker.leases], "the worker began another session");
    worker.gives.clear();
    Object.assign(worker, { session: ++this.sessions, sent: 0, received: 0, gone: 0, gap: false, kept: [], resends: 0 });
    worker.reports += 1;
  }

  part(worker) {
    this.workers.delete(worker.key);
    this.lose([...worker.leases], "the worker is gone", worker);
  }

  // --- messages of workers ---

  ready(worker, { fields: { ready, credit, window = 0, roles, resources } }) {
    if (ready <= worker.ready) return;
    Object.assign(worker, { ready, credit, roles, resources, window: Math.max(worker.window, window), offered: ++this.turns });
    worker.woken.clear();
    worker.reports += 1;
  }

  give(worker, { fields: { lock, want, roles, needs, hold = 0, window = 0 } }) {
    if (!want) return worker.gives.has(lock) ? this.close(worker, lock) : undefined;
    if (lock <= worker.lock) return;
    for (const role of roles) {
      if (worker.woken.delete(role)) this.role(role).since = now();
    }
    worker.window = Math.max(worker.window, window);
    worker.reports += 1;
    worker.lock = lock;
    const until = now() + hold - Math.min(MARGIN * this.unit, hold / 2);
    worker.gives.set(lock, { lock, want, roles, needs, until, hold });
    this.serve(worker);
  }

  close(worker, lock) {
    worker.gives.delete(lock);
    this.sendNumbered(worker, NO, { lock });
  }

  done(worker, { fields, columns, command, from }) {
    const lost = [], again = [];
    for (const [id, attempt, outcome, payload, sum, waits, text] of this.rows(worker, fields, columns, command, from, ["outcomes", "payloads", "checksums", "waits", "texts"])) {
      const job = this.jobs.get(id);
      if (job?.holder !== worker || job.attempt !== attempt) continue; // an earlier entry of this DONE may have ended the job
      if (typeof sum === "number" && sum !== crc32(payload)) lost.push([id, "the result is damaged"]);
      else if (outcome === OK) this.end(job, "ok", payload);
      else if (outcome === FAILED || outcome === OVERRUN) this.failed(job, outcome, payload, waits, text);
      else if (outcome === LOST) lost.push([id, payload.toString()]);
      else { // refused or handed back
        if (outcome === REFUSED || !text) job.begun -= 1; // WMP-6.34
        if (outcome === REFUSED) job.refused = { key: worker.key, reports: worker.reports };
        again.push(id);
      }
    }
    for (const [id, cause] of lost) this.lose([id], cause);
    this.requeue(again);
  }

  failed(job, outcome, payload, waits, text) {
    const names = text?.includes("\n") ? text.slice(text.indexOf("\n") + 1).trim().split(/ +/).filter(Boolean) : ["builtins.Exception"];
    const allowed = outcome === OVERRUN || names.length > 0, word = outcome === OVERRUN ? "timeout" : "error";
    const wait = job.retries === null ? waits : job.failed < job.retries ? waits ?? job.wait : null;
    job.failed += 1;
    const due = now() + Number(wait ?? 0), late = due >= least(job.deadline, job.expiry);
    if (wait === null || wait === undefined || !allowed || late || job.cancelling) return this.end(job, job.cancelling ? "cancelled" : word, payload);
    this.free(job);
    Object.assign(job, { start: due, state: "delayed" });
  }

  status(worker, { fields, columns, command, from }) {
    for (const [id, attempt, fraction, text] of this.rows(worker, fields, columns, command, from, ["fractions", "texts"])) {
      const job = this.jobs.get(id);
      if (job.attempt === attempt) report("status", job.name, fraction?.value ?? null, hex(text ?? "") || "-");
    }
  }

  *rows(worker, fields, columns, command, from, names) { // yield the rows about current leases (WMP-6.2, WMP-10.5)
    const mine = same(fields.manager, this.me), { ids, attempts } = columns;
    if (!mine || ids.some((id) => id > this.last)) {
      this.complain(worker.link, [...from].reverse(), "unknown", command, { about_number: fields.number });
    }
    for (let at = 0; mine && at < ids.length; at++) {
      const job = this.jobs.get(Number(ids[at]));
      if (job?.holder === worker && job.attempt === Number(attempts[at])) {
        yield [Number(ids[at]), Number(attempts[at]), ...names.map((name) => columns[name]?.[at] ?? null)];
      }
    }
  }

  ping(worker, { to, fields, columns }, current) {
    if (current && (columns.ids || fields.idle)) { // WMP-9.13
      const held = new Set((columns.ids ?? []).map((id, at) => `${id} ${columns.attempts[at]}`)), ack = fields.ack ?? 0;
      this.lose([...worker.leases].filter((id) => {
        const { attempt, take } = this.jobs.get(id);
        return take <= ack && !held.has(`${id} ${attempt}`);
      }), "the worker does not hold the job");
    }
    if (to.length) worker.reports += 1;
    this.pong(worker, fields.challenge === undefined ? {} : { answer: fields.challenge });
  }

  bye(worker) {
    this.part(worker);
    this.departed.set(worker.key, worker.epoch);
    if (this.departed.size > 1000) this.departed.delete(this.departed.keys().next().value);
  }

  // --- jobs ---

  submit(name, role, payload, ...options) {
    const given = { timeout: null, max_worker_losses: 3, priority: 0, expires: null, run_limit: null, delay: 0, retries: null, wait: 0 };
    for (const option of options) {
      const [word, value] = option.split("=");
      if (!(word in given)) return report("unknown", name, word);
      given[word] = Number(value);
    }
    const begin = now() + given.delay, at = (time) => (time === null ? null : begin + time);
    const job = { id: ++this.last, name, role, payload: Buffer.from(payload.replace("-", ""), "hex"), ...given, deadline: at(given.timeout), expiry: at(given.expires) };
    Object.assign(job, { start: begin, state: given.delay ? "delayed" : "waiting", place: ++this.back, attempt: 0, holder: null, take: 0, failed: 0, begun: 0, cancelling: false, refused: null, left: new Map() });
    this.jobs.set(job.id, job);
    this.numbers.set(name, job.id);
    if (!given.delay) this.role(role).waiting.push(job);
    report("submitted", name);
    this.share();
  }

  role(name) {
    if (!this.roles.has(name)) this.roles.set(name, { waiting: [], since: now(), stretch: 1 });
    return this.roles.get(name);
  }

  free(job) { // from now on the job is in no queue and at no worker
    job.holder?.leases.delete(job.id);
    if (job.state === "waiting") {
      const { waiting } = this.role(job.role);
      waiting.splice(waiting.indexOf(job), 1);
    }
    Object.assign(job, { holder: null, state: "free" });
  }

  end(job, word, payload = Buffer.alloc(0)) {
    this.free(job);
    this.jobs.delete(job.id);
    this.numbers.delete(job.name);
    report("ended", job.name, word, hex(payload) || "-");
  }

  requeue(ids) { // put jobs before the waiting jobs, in the order of their submission (WMP-6.28)
    this.front -= ids.length;
    [...ids].sort((one, other) => one - other).forEach((id, at) => {
      const job = this.jobs.get(id);
      this.free(job);
      if (job.cancelling) return this.end(job, "cancelled");
      if (job.expiry !== null && job.expiry <= now()) return this.end(job, "timeout", Buffer.from("expired"));
      Object.assign(job, { state: "waiting", place: this.front + at });
      this.role(job.role).waiting.push(job);
    });
  }

  lose(ids, cause, leaver = null) {
    const again = ids.filter((id) => {
      const job = this.jobs.get(id), worker = job.holder, counts = job.take <= worker.gone;
      const times = job.left.get(worker.key) ?? 0, theft = leaver !== null || cause.startsWith("the worker");
      if (theft && counts) job.left.set(worker.key, times + 1);
      if (!counts) job.begun -= 1;
      if (counts && !(theft && times)) job.max_worker_losses -= 1; // WMP-6.17, WMP-6.23
      if (job.max_worker_losses >= 0 || job.cancelling) return true;
      this.end(job, "lost", Buffer.from(`${cause}; worker ${worker.key}, attempt ${job.attempt}`));
      return false;
    });
    this.requeue(again);
  }

  cancel(name) {
    const job = this.jobs.get(this.numbers.get(name));
    if (!job || job.cancelling) return;
    if (!job.holder) return this.end(job, "cancelled");
    job.cancelling = true;
    this.recall(job);
  }

  recall(job) {
    this.sendNumbered(job.holder, CANCEL, { manager: this.me }, { ids: [job.id], attempts: [job.attempt] });
  }

  // --- distribution ---

  room(worker) { // WMP-4.16
    if (!worker.ready) return MOST - worker.leases.size;
    return (worker.resources.get("slots") ?? 0) + 2 * worker.window - worker.leases.size;
  }

  next(worker, give, role) { // the first job of a role that this worker may have
    const may = (job) => !(job.refused?.key === worker.key && job.refused.reports >= worker.reports) && !((job.left.get(worker.key) ?? 0) > 3 && worker.reports % 4);
    const before = (one, other) => other.priority - one.priority || one.place - other.place;
    return this.role(role).waiting.filter(may).sort(before)[0];
  }

  serve(worker) {
    for (const [lock, give] of [...worker.gives]) {
      const first = (give.needs.get("slots") ?? 0) >= 1 && give.roles.map((role) => this.next(worker, give, role)).filter(Boolean)
        .sort((one, other) => other.priority - one.priority || one.place - other.place)[0];
      const rows = [];
      for (let job = first || null; job && rows.length < Math.min(give.want, 1000) && this.room(worker) > 0; job = this.next(worker, give, first.role)) {
        this.free(job);
        Object.assign(job, { attempt: job.attempt + 1, holder: worker, state: "leased" });
        worker.leases.add(job.id);
        rows.push(job);
      }
      give.want -= rows.length;
      const parts = split(rows, this.parts);
      const open = give.want > 0 && now() < give.until;
      parts.forEach((part, at) => this.take(worker, give, part, open || at + 1 < parts.length));
      if (rows.length) Object.assign(this.role(first.role), { stretch: 1, since: now() });
      if (open) continue;
      if (rows.length) worker.gives.delete(lock);
      else this.close(worker, lock);
    }
  }

  take(worker, { lock }, jobs, more) {
    const column = (of) => jobs.map(of), left = (time) => (time === null ? null : Math.max(0, Math.ceil(time - now())));
    const columns = { ids: column(({ id }) => id), attempts: column(({ attempt }) => attempt), payloads: column(({ payload }) => payload) };
    const optional = {
      left: column(({ deadline }) => left(deadline)), expires: column(({ expiry }) => left(expiry)), limits: column(({ run_limit: limit }) => limit),
      failed: column(({ retries, failed }) => (retries === null ? failed : null)), begun: column(({ begun }) => begun), checksums: column(({ payload }) => crc32(payload)),
    };
    for (const [name, values] of Object.entries(optional)) {
      if (values.some((value) => value !== null) || name === "failed") columns[name] = values;
    }
    for (const job of jobs) Object.assign(job, { take: worker.sent + 1, begun: job.begun + 1 });
    const fields = { lock, role: jobs[0].role, needs: NEEDS, manager: this.me, ...(more && { more }) };
    this.sendNumbered(worker, TAKE, fields, columns);
  }

  share() { // serve open GIVEs first, in the order of the offers, then send WAKEs (WMP-5.3)
    const workers = [...this.workers.values()].sort((one, other) => one.offered - other.offered);
    for (const worker of workers) if (worker.gives.size && worker.link !== null) this.serve(worker);
    for (const [name, role] of this.roles) {
      const woken = workers.reduce((sum, worker) => sum + (worker.woken.get(name) ?? 0), 0);
      if (!woken && role.stretch > 1 && !role.waiting.length) role.stretch = 1;
      if (woken && now() > role.since + WAKE_TIMEOUT * this.unit) Object.assign(role, { stretch: 2 * role.stretch, since: now() });
      let missing = role.waiting.length * role.stretch - woken;
      const able = workers.filter((one) => one.link !== null && one.credit && one.roles.includes(name) && !one.woken.has(name) && (one.resources.get("slots") ?? 0) >= 1);
      if (!woken && able.length && missing > 0) role.since = now();
      for (const worker of able) {
        const count = Math.min(worker.credit, missing);
        if (count <= 0) break;
        missing -= count;
        worker.credit -= count;
        worker.woken.set(name, count);
        worker.offered = ++this.turns;
        this.send(worker, WAKE, { count, role: name, needs: NEEDS });
      }
    }
  }

  tick() {
    const time = now();
    for (const job of [...this.jobs.values()]) {
      if (job.deadline !== null && job.deadline <= time) {
        if (job.holder) this.recall(job);
        this.end(job, "timeout", Buffer.from("the deadline has passed"));
      } else if (job.expiry !== null && job.expiry <= time && !job.holder) this.end(job, "timeout", Buffer.from("expired"));
      else if (job.state === "delayed" && job.start <= time) {
        Object.assign(job, { state: "waiting", place: ++this.back });
        this.role(job.role).waiting.push(job);
      }
    }
    for (const worker of [...this.workers.values()]) {
      if (worker.kept[0]?.at + RESEND * this.unit < time) {
        if (worker.resends < 10) this.resend(worker);
        else { // the message counts as refused (WMP-7.12)
          worker.resends = 0;
          this.replace(worker, worker.kept[0], "no ack came", false);
        }
      }
      if (worker.claim && time > Math.min(worker.claim.until, worker.heard + EXPIRE * this.unit)) this.admit(worker);
      else if (time > worker.heard + EXPIRE * this.unit) this.part(worker);
      else if (this.often && time > (worker.spoke ?? 0) + this.unit / 2) {
        worker.spoke = time;
        this.pong(worker);
      }
    }
    this.share();
  }
}

function split(jobs, most) { // divide jobs among TAKEs; a job of a refused TAKE gets a TAKE of its own
  const parts = [];
  for (const job of jobs) {
    const last = parts.at(-1);
    if (!last || last.length >= most || job.alone || last[0].alone) parts.push([job]);
    else last.push(job);
  }
  return parts;
}

function report(...words) { process.stdout.write(`${words.join(" ")}\n`); }

const options = { unit: { type: "string", default: "1000" }, parts: { type: "string", default: "1000" }, often: { type: "boolean", default: false }, connect: { type: "string", default: "" } };
const { values, positionals: [endpoint] } = parseArgs({ options, allowPositionals: true });
const manager = new Manager(endpoint, Number(values.unit), { parts: Number(values.parts), often: values.often, connect: values.connect ? values.connect.split(",") : [] });
let rest = "";
process.stdin.setEncoding("latin1").on("data", (text) => {
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    const [order, ...words] = line.split(" ");
    if (order === "submit") manager.submit(...words);
    if (order === "cancel") {
      manager.cancel(words[0]);
      report("cancelling", words[0]);
    }
  }
});
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => {
  manager.leave();
  setTimeout(() => process.exit(0), 100);
});
