#!/usr/bin/env node
// A device of WMP/1 for Node.js, an opponent of the conformance kit: node device.mjs BIND [--connect UPSTREAM,…] [--managers ADDRESS]
// BIND is for workers, UPSTREAM are the addresses of managers, and managers dial in to ADDRESS. --unit has the milliseconds of a unit.
// The device reads only the head of a message.

import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import { BYE, CANCEL, DONE, ERROR, GIVE, NO, PING, PONG, READY, Reader, Refused, STATUS, TAKE, WAKE, decodeMessage, encode } from "./messages.mjs";
import { Dealer, Router } from "./zmtp.mjs";

const UPWARD = [READY, GIVE, DONE, STATUS, PING, BYE, ERROR], DOWNWARD = [WAKE, TAKE, NO, CANCEL, PONG, ERROR], HOPS = 16;
const SILENCE = 6, MANAGERS = 1000; // units, managers that dial in
const JOBS = [TAKE, DONE, STATUS, CANCEL], ANY = Buffer.from("a40181010201040005814161", "hex"); // columns that every such command may have
const same = (one, other) => encode(one).equals(encode(other));

class Device {
  constructor(bind, connect, managers, unit) {
    Object.assign(this, { me: [randomBytes(16), Date.now()], unit, dialed: new Map(), ids: new Map(), last: connect.length - 1 });
    this.router = new Router(bind, { message: (id, frames) => this.receive(Buffer.from(id, "hex"), frames) });
    this.upstreams = connect.map((endpoint, at) => {
      const dealer = new Dealer();
      dealer.connect(endpoint);
      this.listen(dealer, at);
      return dealer;
    });
    if (!managers) return;
    this.upper = new Router(managers, { message: (id, frames) => this.receive(this.number(id), frames), close: (id) => {
      this.dialed.delete(this.ids.get(id));
      this.ids.delete(id);
    } });
  }

  async listen(dealer, at) {
    for await (const frames of dealer) this.receive(at, frames);
  }

  // --- managers that dial in (WMP-8.12) ---

  number(id) { // the local id of a connection of the upper ROUTER
    if (!this.ids.has(id)) {
      this.last += 1;
      this.ids.set(id, this.last);
    }
    return this.ids.get(id);
  }

  dials(link) { return typeof link === "number" && link >= this.upstreams.length; }

  managers() { // the connections that are those of managers now
    for (const [link, heard] of this.dialed) if (Date.now() > heard + SILENCE * this.unit) this.dialed.delete(link);
    return this.dialed;
  }

  answer(link, frames) { // send to a connection, whoever is there
    if (this.dials(link)) return [...this.ids].some(([id, number]) => number === link && this.upper.send(id, frames));
    if (typeof link !== "number") return this.router.send(Buffer.from(link).toString("hex"), frames);
    if (!this.upstreams[link]) return false;
    this.upstreams[link].send(frames);
    return true;
  }

  send(link, frames) { return (!this.dials(link) || this.managers().has(link)) && this.answer(link, frames); }

  receive(link, frames) {
    const below = typeof link !== "number", dials = this.dials(link);
    let message;
    try { message = (dials && announcement(frames)) || head(frames); } catch (refused) {
      if (!(refused instanceof Refused)) throw refused;
      const { to, place } = refused, mine = Array.isArray(to) && to.length > 4 && place.session !== undefined;
      const more = mine ? { 2: place.session, 23: place.about_number, 24: [to.at(-1), to.at(-2)] } : {}; // WMP-10.7
      return this.complain(link, refused.back, refused.code, refused.command, { 21: refused.message, ...more });
    }
    const { command, to, from, fields } = message, back = [...from].reverse(), refuse = (code, more) => this.complain(link, back, code, command, more);
    const announces = dials && !to.length && (command === PONG || command === BYE);
    if (!announces && !(below ? UPWARD : DOWNWARD).includes(command)) return refuse("direction");
    if (command === ERROR && !to.length) return;
    const passed = from.filter((item, at) => at >= 2 && at % 3 === 2);
    if (passed.some((identity) => same(identity, this.me[0])) || passed.length >= HOPS) return refuse("loop");
    if (dials && command === BYE) return this.dialed.delete(link);
    const [local, epoch, identity, ...rest] = to;
    let wrong = null;
    if (to.length && (to.length < 5 || !same(identity, this.me[0]))) wrong = "misrouted";
    else if (to.length && epoch !== this.me[1]) wrong = "unreachable";
    else if (to.length && (typeof local === "number") !== below) wrong = "misrouted";
    if (wrong) return refuse(wrong, { 24: [to.at(-1), to.at(-2)] });
    if (dials && command !== ERROR) {
      if (!this.managers().has(link) && this.dialed.size >= MANAGERS) return refuse("limit");
      this.dialed.set(link, Date.now());
    }
    if (announces) return;
    const source = [...from, ...this.me, link];
    const onward = (rest) => [Buffer.concat([frames[0].subarray(0, 3), encode(rest), encode(source), fields]), ...frames.slice(1)];
    if (!to.length) return [...this.upstreams.keys(), ...this.managers().keys()].forEach((at) => this.send(at, onward([])));
    if (!this.send(local, onward(rest))) refuse("unreachable", { 24: [to.at(-1), to.at(-2)] });
  }

  complain(link, to, code, command, more = {}) {
    if (command === ERROR) return;
    const entries = [[20, code], ...(typeof command === "number" ? [[22, command]] : []), ...(code === "version" ? [[35, [1]]] : []), ...Object.entries(more).map(([key, value]) => [Number(key), value])];
    const fields = new Map(entries.sort(([one], [other]) => one - other));
    this.answer(link, [encode([1, ERROR, to, this.me, fields])]);
  }
}

/** Check a head as an end node would. Return its items, and the bytes of the fields unchanged. */
function head(frames) {
  const { command, to, from } = decodeMessage(JOBS.includes(frames[0]?.[2]) ? [frames[0], ANY] : frames.slice(0, 1));
  const reader = new Reader(frames[0]);
  reader.at = 3; // behind the array's header, the version and the command
  reader.value();
  reader.value();
  return { command, to, from, fields: frames[0].subarray(reader.at) };
}

/** Return the items of a PONG or BYE without `to`, which an end node never receives (WMP-8.11); null for another message. */
function announcement(frames) {
  const [first] = frames, command = first?.[2];
  if (first?.[0] !== 0x85 || first[1] !== 1 || ![PONG, BYE].includes(command) || first[3] !== 0x80) return null;
  const checked = decodeMessage([Buffer.concat([Buffer.from([0x85, 1, BYE]), encode([0, Buffer.from("m")]), first.subarray(4)])]);
  if (command === PONG && checked.fields.expire === undefined) throw new Refused("malformed", "max_silence is missing");
  return { command, to: [], from: checked.from, fields: Buffer.alloc(0) };
}

const options = { connect: { type: "string", default: "" }, managers: { type: "string", default: "" }, unit: { type: "string", default: "1000" } };
const { values, positionals: [bind] } = parseArgs({ options, allowPositionals: true });
new Device(bind, values.connect ? values.connect.split(",") : [], values.managers, Number(values.unit));
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(0));
