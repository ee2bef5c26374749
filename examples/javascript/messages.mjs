// WMP/1 messages to frames and back, written from specs/wmp.md section 2 alone.
// This file decodes CBOR itself, because WMP-2.2 is stricter than libraries: 1.0 is not 1, and 0x1809 is the key 9 too.

export const [READY, WAKE, GIVE, TAKE, NO, DONE, STATUS, CANCEL, PING, PONG, BYE, ERROR] = Array.from({ length: 12 }, (_, n) => n + 1);
export const [OK, FAILED, REFUSED, CANCELLED, LOST, OVERRUN] = [0, 1, 2, 3, 4, 5]; // outcomes
const HEAD = 1 << 14, COLUMNS = 1 << 24, PAYLOAD = 1 << 28, JOBS = 4096, HOPS = 16, INLINE = 4096, MOST = 2n ** 63n;

export class Float { constructor(value) { this.value = value; } }

/** Thrown for frames that are not a message. Has the code and text of the ERROR, and `back` and `command` if they can be read. */
export class Refused extends Error {
  constructor(code, text) { super(text); Object.assign(this, { code, back: [], place: {} }); }
}

function must(holds, text, code = "malformed") { if (!holds) throw new Refused(code, text); return true; }

// --- CBOR: only integers, floats, bytes, texts, booleans, null, arrays and maps ---

export class Reader { // `odd`: well-formed, but no value of WMP
  constructor(frame) { this.frame = frame; this.at = 0; this.odd = false; }

  take(count) {
    must(count <= this.frame.length - this.at, "incomplete");
    this.at += Number(count);
    return this.frame.subarray(this.at - Number(count), this.at);
  }

  argument(info) { // a number that JavaScript holds exactly, or a BigInt
    must(info < 28, "indefinite, or not well-formed");
    if (info < 24) return info;
    const bytes = this.take(1 << (info - 24));
    const value = info === 27 ? bytes.readBigUInt64BE() : bytes.readUIntBE(0, bytes.length);
    return value <= Number.MAX_SAFE_INTEGER ? Number(value) : value;
  }

  value(depth = 0) {
    const first = this.take(1)[0], major = first >> 5, info = first & 31;
    if (major === 7) return this.simple(info);
    const argument = this.argument(info);
    if (major === 0) { this.odd ||= argument >= MOST; return argument; }
    if (major === 1) return typeof argument === "bigint" ? -1n - argument : -1 - argument;
    if (major === 2) return this.take(argument);
    if (major === 3) return this.text(argument);
    must(major !== 6, "a tag");
    must(depth < 16, "nested too deep");
    must(argument <= this.frame.length - this.at, "incomplete");
    if (major === 4) return Array.from({ length: argument }, () => this.value(depth + 1));
    const map = new Map(), seen = new Set();
    for (let entry = 0; entry < argument; entry++) {
      const key = this.value(depth + 1), name = encode(key).toString("hex");
      must(!seen.has(name), "a key twice");
      seen.add(name);
      map.set(key, this.value(depth + 1));
    }
    return map;
  }

  simple(info) {
    if (info >= 20 && info <= 22) return [false, true, null][info - 20];
    must(info < 28, "indefinite, or not well-formed");
    if (info < 25) { this.odd = true; return info < 24 ? undefined : this.take(1); } // undefined, or a simple value
    const bytes = this.take(1 << (info - 24));
    if (info === 26) return new Float(bytes.readFloatBE());
    if (info === 27) return new Float(bytes.readDoubleBE());
    const half = bytes.readUInt16BE(), exponent = (half >> 10) & 31, fraction = half & 1023;
    const size = exponent === 31 ? (fraction ? NaN : Infinity)
      : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    return new Float(half >> 15 ? -size : size);
  }

  text(length) {
    try { return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.take(length)); }
    catch (error) { throw error instanceof Refused ? error : new Refused("malformed", "not UTF-8"); }
  }
}

function start(major, count) {
  if (count < 24) return Buffer.from([(major << 5) | Number(count)]);
  const width = count < 256 ? 0 : count < 65536 ? 1 : count < 2 ** 32 ? 2 : 3, buffer = Buffer.alloc(1 + (1 << width));
  buffer[0] = (major << 5) | (24 + width);
  if (width === 3) buffer.writeBigUInt64BE(BigInt(count), 1); else buffer.writeUIntBE(Number(count), 1, 1 << width);
  return buffer;
}

/** Encode a value as WMP-2.2 requires. A float takes 9 bytes; a worker need not send floats. */
export function encode(value) {
  if (value === null || typeof value === "boolean") return Buffer.from([value === null ? 0xf6 : value ? 0xf5 : 0xf4]);
  if (typeof value === "number" || typeof value === "bigint") {
    return value >= 0 ? start(0, value) : start(1, typeof value === "bigint" ? -1n - value : -1 - value);
  }
  if (value instanceof Float) { const buffer = Buffer.alloc(9, 0xfb); buffer.writeDoubleBE(value.value, 1); return buffer; }
  if (typeof value === "string") { const bytes = Buffer.from(value); return Buffer.concat([start(3, bytes.length), bytes]); }
  if (value instanceof Uint8Array) return Buffer.concat([start(2, value.length), value]);
  if (Array.isArray(value)) return Buffer.concat([start(4, value.length), ...value.map(encode)]);
  const entries = [...(value instanceof Map ? value : Object.entries(value))].map(([key, item]) => [encode(key), encode(item)]);
  entries.sort((one, other) => Buffer.compare(one[0], other[0]));
  return Buffer.concat([start(5, entries.length), ...entries.flat()]);
}

// --- the types and limits of the values in a message ---

const uint = (least, most = MOST) => (x) => (typeof x === "number" || typeof x === "bigint") && x >= least && x < most;
const [natural, positive] = [uint(0), uint(1)];
const text = (most) => (x) => typeof x === "string" && must(Buffer.byteLength(x) <= most, "a text too long", "limit");
const [name, words] = [text(255), text(1024)];
const flag = (x) => typeof x === "boolean";
const names = (x) => Array.isArray(x) && must(x.length <= 256, "above 256 names", "limit") && x.every(name);
const amounts = (x) => x instanceof Map && names([...x.keys()]) && [...x.values()].every(natural);
const identity = (x) => x instanceof Uint8Array && x.length > 0 && must(x.length < 256, "an identity too long", "limit");
const peer = (x) => path(x) && x.length === 2;
const peers = (x) => Array.isArray(x) && must(x.length <= 256, "above 256 stores", "limit") && x.every(peer);
const versions = (x) => Array.isArray(x) && must(x.length <= 256, "above 256 versions", "limit") && x.every(natural);
const identities = (x) => Array.isArray(x) && must(x.length <= 256, "above 256 identities", "limit") && x.every(identity);
const orNull = (check) => (x) => x === null || check(x);

function path(x) { // identity, epoch, then (identity, epoch, local id) of each device
  if (!Array.isArray(x) || x.length % 3 !== 2) return false;
  must(x.length <= 2 + 3 * HOPS, "too many hops", "limit");
  return x.every((item, at) => at < 2 ? [identity, natural][at](item)
    : [identity, natural, (local) => natural(local) || identity(local)][(at - 2) % 3](item));
}

const FIELDS = { // in the order of their keys, from 0
  number: positive, ack: natural, session: positive, again: flag, ready: positive, credit: natural, window: natural,
  roles: names, resources: amounts, count: positive, role: name, needs: amounts, lock: positive, want: natural,
  hold: natural, more: flag, manager: peer, codec: name, unstarted: flag, expire: natural, code: name, text: words,
  about: natural, about_number: natural, about_peer: peer, label: words, idle: flag,
  standby: flag, challenge: positive, answer: positive, keep: natural, serves: peers, kept: natural, sent: natural,
  unassigned: () => true, versions, forwards: identities, passed: identities,
};
const ENTRIES = { // of columns, in the order of their keys, from 1
  ids: positive, attempts: positive, left: orNull(natural), outcomes: uint(0, 6),
  payloads: orNull((x) => x instanceof Uint8Array), fractions: orNull((x) => x instanceof Float),
  texts: orNull((x) => typeof x === "string"), expires: orNull(natural), limits: orNull(natural),
  failed: orNull(natural), waits: orNull(natural), checksums: orNull(natural), begun: orNull(natural),
};
const REQUIRED = {
  [READY]: "ready credit roles resources", [WAKE]: "count role needs", [GIVE]: "lock want",
  [TAKE]: "number session lock role needs manager ids attempts payloads", [NO]: "number session lock",
  [DONE]: "number session manager ids attempts outcomes payloads", [STATUS]: "number session manager ids attempts",
  [CANCEL]: "number session manager ids attempts", [PING]: "", [PONG]: "expire session", [BYE]: "", [ERROR]: "code",
};

// --- messages ---

function parse(frame) {
  const reader = new Reader(frame), value = reader.value();
  return [value, reader.at === frame.length && !reader.odd];
}

/** Decode frames to {command, to, from, fields, columns}. Throws no error but Refused. */
export function decodeMessage(frames) {
  let head = null;
  try {
    must(frames.length > 0, "the message has no frames");
    must(frames[0].length <= HEAD, "the head is too long", "limit");
    const [value, whole] = parse(frames[0]);
    must(Array.isArray(value) && value.length > 0, "the head is not an array, or an empty array");
    head = value;
    return checked(head, whole, frames);
  } catch (refused) {
    const first = frames[0] ?? [];
    refused.command = head ? (natural(head[1]) ? head[1] : null)
      : first[0] === 0x85 && first[1] === 1 && first[2] < 24 ? first[2] : null;
    try { refused.back = head && path(head[3]) ? [...head[3]].reverse() : []; } catch { /* above a limit */ }
    refused.to = head?.[2];
    const session = head?.[4]?.get?.(2), number = head?.[4]?.get?.(0); // WMP-10.7
    if (head?.[1] >= TAKE && head[1] <= CANCEL && positive(session) && positive(number)) refused.place = { session, about_number: number };
    throw refused;
  }
}

function checked(head, whole, frames) {
  must(natural(head[0]), "the version is not an integer");
  must(head[0] === 1, `the version is ${head[0]}; expected 1`, "version");
  must(head.length === 5 && whole, "the head is not one array of five items");
  const [, command, to, from, entries] = head;
  must(natural(command), "the command is not an unsigned integer");
  must(command in REQUIRED, `there is no command ${command}`, "command");
  must(frames.length <= 2 + JOBS, "the message has too many frames", "limit");
  must(frames[0][0] === 0x85 && frames[0][1] === 1 && frames[0][2] === command, "array header, version and command must be one byte each");
  must(path(from), "'from' is not a path");
  must(Array.isArray(to) && (to.length === 0 ? [READY, PING, ERROR].includes(command) : path([...to].reverse())), "'to' is not a reversed path, or empty");
  must(entries instanceof Map && [...entries.keys()].every((key) => typeof key === "string" || natural(key)), "the fields are not a map with integers or text as keys");
  const fields = {};
  Object.entries(FIELDS).forEach(([word, check], key) => {
    if (!entries.has(key)) return;
    must(check(entries.get(key)), `the field ${word} has a value of a wrong type`);
    fields[word] = entries.get(key);
  });
  const columns = readColumns(command, to, frames);
  const more = command === GIVE && fields.want > 0 ? " roles needs" : "";
  for (const word of (REQUIRED[command] + more).split(" ")) must(!word || word in fields || word in columns, `${word} is missing`);
  return { command, to, from, fields, columns };
}

function readColumns(command, to, frames) {
  const needed = REQUIRED[command].includes("ids"), columns = {};
  if (frames.length === 1 && !needed) return columns;
  must(frames.length > 1 && (needed || (command === PING && to.length > 0)), "columns are missing, or not allowed for this command");
  must(frames[1].length <= COLUMNS, "the columns are too long", "limit");
  const [table, whole] = parse(frames[1]);
  must(table instanceof Map && whole && table.size < 24, "the columns are not one map of fewer than 24 entries");
  for (const [key, column] of table) {
    must(typeof key === "string" || natural(key), "a column's key is neither an unsigned integer nor text");
    must(!(column instanceof Map) && [column].flat().every((x) => !Array.isArray(x) && !(x instanceof Map)), "a column has a nested array or map");
  }
  const ids = table.get(1);
  must(Array.isArray(ids) && ids.length > 0, "the column ids is not an array, or an empty array");
  must(ids.length <= JOBS, "the message has too many jobs", "limit");
  Object.entries(ENTRIES).forEach(([word, check], at) => {
    if (!table.has(at + 1)) return;
    const given = table.get(at + 1);
    const column = Array.isArray(given) || word === "payloads" ? given : ids.map(() => given);
    must(Array.isArray(column) && column.length === ids.length && column.every(check), `the column ${word} has a wrong length, or an entry of a wrong type`);
    columns[word] = column;
  });
  const behind = frames.slice(2), payloads = columns.payloads ?? [];
  must(payloads.filter((x) => x === null).length === behind.length, "the numbers of payload frames and of nulls differ");
  must(behind.every((frame) => frame.length <= PAYLOAD), "a payload is too long", "limit");
  if (behind.length) columns.payloads = payloads.map((x) => x ?? behind.shift());
  return columns;
}

/** Encode {command, to, from, fields, columns} to frames. Large payloads get frames of their own. */
export function encodeMessage({ command, to, from, fields, columns }) {
  const keyed = (named, names, first) => new Map(Object.entries(named).map(([word, x]) => [names.indexOf(word) + first, x]));
  const frames = [encode([1, command, to, from, keyed(fields, Object.keys(FIELDS), 0)])];
  if (!columns) return frames;
  const payloads = columns.payloads ?? [], behind = payloads.filter((x) => x.length > INLINE);
  const table = { ...columns, ...(columns.payloads && { payloads: payloads.map((x) => (x.length > INLINE ? null : x)) }) };
  for (const word of ["attempts", "outcomes"]) { // a single value stands for equal values
    if (table[word]?.every((x) => x === table[word][0])) table[word] = table[word][0];
  }
  return [...frames, encode(keyed(table, Object.keys(ENTRIES), 1)), ...behind];
}
