// The steps of a worker of WMP/1 before the command of a message counts: links, routes, sessions and their numbers.

import { Dealer } from "zeromq";
import { ERROR, PING, PONG, Refused, decodeMessage, encode, encodeMessage } from "./messages.mjs";

export const EXPIRE = 6, RESEND = 3, PATIENCE = 32; // units
const WAITING = 10_000; // messages
export const hex = (bytes) => Buffer.from(bytes).toString("hex");
export const same = (one, other) => encode(one).equals(encode(other));
const sizeOf = (columns) => (columns?.payloads ?? []).reduce((sum, payload) => sum + payload.length, 0);

export class Link { // the DEALER to one endpoint: sends one message after the other, and drops messages if too many wait
  constructor(endpoint, receive) { Object.assign(this, { endpoint, receive, heard: Date.now(), patience: 0 }); this.connect(); }

  connect() {
    this.socket?.close();
    this.socket = new Dealer({ linger: 1000, sendHighWaterMark: WAITING, receiveHighWaterMark: WAITING,
      maxMessageSize: 1 << 28, heartbeatInterval: 1000, heartbeatTimeout: 5000 });
    [this.waiting, this.sending, this.fresh] = [[], false, true];
    this.socket.connect(this.endpoint);
    this.listen(this.socket);
  }

  async listen(socket) {
    for await (const frames of socket) { [this.heard, this.patience] = [Date.now(), 0]; this.receive(this, frames); }
  }

  async send(message) {
    if (this.waiting.length < WAITING) this.waiting.push(encodeMessage(message));
    if (this.sending) return;
    const socket = this.socket;
    this.sending = true;
    while (socket === this.socket && this.waiting.length) await socket.send(this.waiting.shift()).catch(() => {});
    if (socket === this.socket) this.sending = false;
  }

  replaceIfSilent(interval, unit) { // after three silent intervals, then after longer and longer silence (WMP-9.4)
    if (Date.now() < this.heard + Math.max(3 * interval, this.patience)) return false;
    [this.heard, this.patience] = [Date.now(), Math.min(Math.max(unit, 2 * this.patience), PATIENCE * unit)];
    this.connect();
    return true;
  }
}

/** Knows managers by identity. A subclass has `acts` by command, `flush()`, `forget(manager)` and `end(status, text)`. */
export class Node {
  constructor(identity, unit) {
    Object.assign(this, { identity, unit, epoch: Date.now(), greeted: 0 });
    this.me = [identity, this.epoch];
    [this.managers, this.left, this.challenges] = [new Map(), new Map(), 0]; // left: sessions that must not be entered again
  }

  // --- sending ---

  send(manager, command, fields = {}, columns) {
    const { stream } = manager;
    const acks = stream ? { session: stream.session, ack: stream.received } : {};
    manager.link?.send({ command, to: manager.to, from: this.me, fields: { ...fields, ...acks }, columns });
  }

  sendNumbered(manager, command, fields, columns) { // send a message, and keep it until its ack
    const { stream } = manager;
    if (!stream) return;
    const kept = { number: ++stream.sent, at: Date.now(), command, fields: { ...fields, number: stream.sent }, columns };
    stream.unacknowledged.push(kept);
    stream.size += sizeOf(columns);
    this.send(manager, command, kept.fields, columns);
  }

  resend(manager) { // from ack + 1, in order (WMP-7.3)
    if (manager.stream) manager.stream.resends += 1;
    for (const kept of manager.stream?.unacknowledged ?? []) {
      kept.at = Date.now();
      this.send(manager, kept.command, kept.fields, kept.columns);
    }
  }

  complain(link, to, code, command, more = {}) { // answer with ERROR, but never to an ERROR (WMP-10.3)
    const about = { ...(command !== null && command !== undefined && { about: command }), ...(code === "version" && { versions: [1] }) };
    if (command !== ERROR) link.send({ command: ERROR, to, from: this.me, fields: { code, ...about, ...more } });
  }

  // --- receiving ---

  receive(link, frames) {
    let message;
    try { message = decodeMessage(frames); } catch (refused) {
      if (!(refused instanceof Refused)) throw refused;
      const place = Array.isArray(refused.to) && same(refused.to, [this.epoch, this.identity]) ? refused.place : {};
      return this.complain(link, refused.back, refused.code, refused.command, { text: refused.message, ...place });
    }
    const { command, to, from, fields } = message, back = [...from].reverse(), [identity, epoch] = from, key = hex(identity);
    const act = this.acts[command];
    if (command === ERROR) return this.error(link, message);
    if (!act) return this.complain(link, back, "direction", command);
    if (!same(to, [this.epoch, this.identity])) { // WMP-2.7
      const other = to.length === 2 && same(to[1], this.identity);
      return this.complain(link, back, other ? "superseded" : "misrouted", command, { about_peer: [to.at(-1), to.at(-2)] });
    }
    if (!this.admits(this.managers.get(key), link, message, back)) return;
    const manager = this.managers.get(key) ?? this.meet(key, epoch);
    if (fields.answer !== undefined && manager.claim?.number === fields.answer) this.refuse(manager);
    const moved = manager.link !== link || !same(manager.to, back);
    Object.assign(manager, { link, to: back, heard: Date.now() });
    if (link.fresh && from.length === 2) { // the manager that had this connection has gone; the next tick releases its locks (WMP-9.12)
      link.fresh = false;
      for (const other of this.managers.values()) if (other !== manager && other.link === link && other.to.length === 2) other.link = null;
    }
    manager.doubted ||= moved && Boolean(manager.stream);
    const current = this.inSession(manager, fields, command), { stream } = manager;
    if (current && stream && fields.session === stream.session) this.acknowledge(stream, fields.ack ?? 0, fields.kept);
    if (moved || (current && fields.again)) this.resend(manager);
    if (!current) return;
    if (stream && fields.number !== undefined && fields.number !== stream.received + 1) { // WMP-7.1
      const gap = fields.number > stream.received && !stream.gap;
      stream.gap ||= gap;
      return gap ? this.send(manager, PING, { again: true }) : undefined;
    }
    if (stream && fields.number !== undefined) Object.assign(stream, { received: fields.number, gap: false });
    this.flush(); // sends the DONEs: a place is free only after its DONE
    act.call(this, manager, message, link);
  }

  // --- the holder of an identity (section 15) ---

  admits(manager, link, message, back) {
    if (!manager || (manager.link === link && same(manager.to, back))) return true;
    const epoch = message.from[1], route = manager.link === link && same(manager.to.slice(0, -2), back.slice(0, -2));
    if (!manager.link || (route && epoch > manager.epoch)) { // WMP-15.2
      manager.claim = null;
      if (epoch !== manager.epoch) this.part(manager.key);
      return true;
    }
    const { challenge } = message.fields, session = epoch === manager.epoch && manager.stream ? { session: manager.stream.session } : {};
    if (challenge !== undefined) link.send({ command: PING, to: back, from: this.me, fields: { answer: challenge, ...session } }); // WMP-15.4
    if (manager.claim) return false;
    this.challenges += 1;
    manager.claim = { link, back, epoch, command: message.command, number: this.challenges, until: Date.now() + this.unit };
    this.send(manager, PING, { challenge: this.challenges });
    return false;
  }

  refuse(manager) { // the holder answered: the claim has failed (WMP-15.5)
    const { link, back, epoch, command } = manager.claim;
    manager.claim = null;
    if (epoch !== manager.epoch) this.complain(link, back, "superseded", command, { about_peer: [back.at(-1), epoch] });
  }

  admit(manager) { // the holder has gone: the peer that claims the identity holds it now (WMP-15.6)
    const { claim } = manager;
    manager.claim = null;
    if (!claim) return;
    if (claim.epoch !== manager.epoch) {
      this.part(manager.key);
      manager = this.meet(manager.key, claim.epoch);
    }
    Object.assign(manager, { link: claim.link, to: claim.back, heard: Date.now(), doubted: Boolean(manager.stream) });
    this.resend(manager);
    this.send(manager, PING, { again: true });
  }

  meet(key, epoch) {
    const manager = { key, epoch, to: [], expire: EXPIRE * this.unit, ready: this.greeted, served: 0, locks: new Map(), claim: null };
    for (const link of this.links) link.refusedSince = 0;
    this.managers.set(key, manager);
    return manager;
  }

  inSession(manager, { session, number = 0 }, command) {
    const { stream } = manager, doubted = manager.doubted && stream && command === PONG && session !== undefined;
    if (doubted) manager.doubted = false;
    if (doubted && session < stream.session) { // a stranger had begun the session over the old route (WMP-15.11)
      this.forget(manager);
      this.left.delete(`${manager.key} ${manager.epoch}`);
      this.send(manager, PING);
      return false;
    }
    if (session === undefined || (stream && session <= stream.session)) return session === undefined || session === stream.session;
    if (session <= (this.left.get(`${manager.key} ${manager.epoch}`) ?? 0) || (!stream && number > 1)) { // WMP-7.8
      if (number) this.send(manager, PING);
      return !number;
    }
    if (stream) this.forget(manager);
    manager.stream = { session, sent: 0, received: 0, gap: false, unacknowledged: [], size: 0, resends: 0 };
    return true;
  }

  acknowledge(stream, ack) {
    while (ack <= stream.sent && stream.unacknowledged[0]?.number <= ack) {
      stream.size -= sizeOf(stream.unacknowledged.shift().columns);
      stream.resends = 0;
    }
  }

  resendLate(manager) { // a message that was sent again ten times counts as refused (WMP-7.12)
    const { stream } = manager, often = stream.resends >= 10;
    if (often) stream.resends = 0;
    if (often) this.replace(manager, stream.unacknowledged[0], "no ack came"); else this.resend(manager);
  }

  replace(manager, kept, text) { // the manager never accepts this message: other messages take its place (WMP-7.11)
    const { stream } = manager;
    if (kept.replaced) {
      this.forget(manager);
      this.send(manager, PING);
      return;
    }
    const [first, ...others] = this.others(kept.columns, text);
    kept.replaced = !others.length;
    stream.size += sizeOf(first) - sizeOf(kept.columns);
    kept.columns = first;
    this.resend(manager);
    for (const columns of others) this.sendNumbered(manager, kept.command, kept.fields, columns);
  }

  part(key) {
    const manager = this.managers.get(key);
    this.managers.delete(key);
    if (manager) this.forget(manager);
  }

  error(link, { to, from, fields }) { // an ERROR counts for the route over which it came (WMP-15.8)
    const { code } = fields, refusal = code === "malformed" || code === "limit";
    const about = fields.about_peer ?? (refusal ? from.slice(0, 2) : undefined);
    if (!about || !same(to, [this.epoch, this.identity])) return;
    if (code === "superseded" && same(about, this.me)) this.refused(link, from);
    const manager = this.managers.get(hex(about[0])), hops = [...from].reverse().slice(0, -2);
    if (manager?.epoch !== about[1] || manager.link !== link) return;
    if (hops.length > manager.to.length - 2 || !same(manager.to.slice(0, hops.length), hops)) return;
    if (refusal) {
      const kept = manager.stream?.session === fields.session && manager.stream?.unacknowledged.find((one) => one.number === fields.about_number);
      if (kept && kept.command === fields.about) this.replace(manager, kept, fields.text ?? "");
    } else if (code === "superseded" && !manager.claim) this.part(manager.key);
    else if (["superseded", "unreachable", "misrouted"].includes(code)) {
      manager.link = null; // the next tick releases its locks
      this.admit(manager);
    }
  }

  refused(link, from) { // the manager serves another process of this identity; other managers may serve this one (WMP-15.9)
    const manager = this.managers.get(hex(from[0])), now = Date.now(), patience = 3 * this.unit;
    if (manager) {
      if (manager.link !== link || !same(manager.to, [...from].reverse())) return;
      if (manager.claim?.epoch === manager.epoch) return this.admit(manager);
      this.part(manager.key);
    }
    if (this.managers.size) return;
    link.refusedSince ||= now;
    link.refusedAt = now;
    const all = this.links.every((one) => one.refusedSince && one.refusedSince + patience <= now && now < one.refusedAt + patience);
    if (all) this.end(1, `no manager serves ${hex(this.identity)}: another process has this identity`);
  }
}
