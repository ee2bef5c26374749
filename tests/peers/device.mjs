#!/usr/bin/env node
// A device of WMP/1 for Node.js, an opponent of the conformance kit: node device.mjs tcp://HOST:PORT tcp://HOST:PORT[,…]
// The first address is bound, the others are those of the upstream managers. The device reads only the head of a message.

import { randomBytes } from "node:crypto";
import { BYE, CANCEL, DONE, ERROR, GIVE, NO, PING, PONG, READY, Reader, Refused, STATUS, TAKE, WAKE, decodeMessage, encode } from "./messages.mjs";
import { Dealer, Router } from "./zmtp.mjs";

const UPWARD = [READY, GIVE, DONE, STATUS, PING, BYE, ERROR], DOWNWARD = [WAKE, TAKE, NO, CANCEL, PONG, ERROR], HOPS = 16;
const JOBS = [TAKE, DONE, STATUS, CANCEL], ANY = Buffer.from("a40181010201040005814161", "hex"); // columns that every such command may have
const same = (one, other) => encode(one).equals(encode(other));

class Device {
  constructor(bind, connect) {
    this.me = [randomBytes(16), Date.now()];
    this.router = new Router(bind, { message: (id, frames) => this.receive(Buffer.from(id, "hex"), frames) });
    this.upstreams = connect.map((endpoint, at) => {
      const dealer = new Dealer();
      dealer.connect(endpoint);
      this.listen(dealer, at);
      return dealer;
    });
  }

  async listen(dealer, at) {
    for await (const frames of dealer) this.receive(at, frames);
  }

  send(link, frames) {
    if (typeof link !== "number") return this.router.send(Buffer.from(link).toString("hex"), frames);
    if (!this.upstreams[link]) return false;
    this.upstreams[link].send(frames);
    return true;
  }

  receive(link, frames) {
    const below = typeof link !== "number";
    let message;
    try { message = head(frames); } catch (refused) {
      if (!(refused instanceof Refused)) throw refused;
      const { to, place } = refused, mine = Array.isArray(to) && to.length > 4 && place.session !== undefined;
      const more = mine ? { 2: place.session, 23: place.about_number, 24: [to.at(-1), to.at(-2)] } : {}; // WMP-10.7
      return this.complain(link, refused.back, refused.code, refused.command, { 21: refused.message, ...more });
    }
    const { command, to, from, fields } = message, back = [...from].reverse(), refuse = (code, more) => this.complain(link, back, code, command, more);
    if (!(below ? UPWARD : DOWNWARD).includes(command)) return refuse("direction");
    if (command === ERROR && !to.length) return;
    const passed = from.filter((item, at) => at >= 2 && at % 3 === 2);
    if (passed.some((identity) => same(identity, this.me[0])) || passed.length >= HOPS) return refuse("loop");
    const source = [...from, ...this.me, link];
    const onward = (rest) => [Buffer.concat([frames[0].subarray(0, 3), encode(rest), encode(source), fields]), ...frames.slice(1)];
    if (!to.length) return this.upstreams.forEach((_, at) => this.send(at, onward([])));
    const [local, epoch, identity, ...rest] = to;
    if (to.length < 5 || !same(identity, this.me[0])) return refuse("misrouted", { 24: [to.at(-1), to.at(-2)] });
    if (epoch !== this.me[1]) return refuse("unreachable", { 24: [to.at(-1), to.at(-2)] });
    if ((typeof local === "number") !== below) return refuse("misrouted", { 24: [to.at(-1), to.at(-2)] });
    if (!this.send(local, onward(rest))) refuse("unreachable", { 24: [to.at(-1), to.at(-2)] });
  }

  complain(link, to, code, command, more = {}) {
    if (command === ERROR) return;
    const entries = [[20, code], ...(typeof command === "number" ? [[22, command]] : []), ...(code === "version" ? [[35, [1]]] : []), ...Object.entries(more).map(([key, value]) => [Number(key), value])];
    const fields = new Map(entries.sort(([one], [other]) => one - other));
    this.send(link, [encode([1, ERROR, to, this.me, fields])]);
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

const [bind, connect] = process.argv.slice(2);
new Device(bind, connect.split(","));
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(0));
