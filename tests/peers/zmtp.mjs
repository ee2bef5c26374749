// ZMTP 3.1 with the mechanism NULL over tcp, as far as the peers of this folder need it: DEALER and ROUTER.
// It needs only Node.js. `Dealer` has those methods of the package zeromq that examples/javascript uses.

import { randomBytes } from "node:crypto";
import net from "node:net";

const MORE = 1, LONG = 2, COMMAND = 4, RETRY = 50; // flags of a frame; milliseconds
const GREETING = Buffer.alloc(64);
GREETING.set([0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 1]);
GREETING.write("NULL", 12);

function frame(flags, body) {
  if (body.length < 256) return [Buffer.from([flags, body.length]), body];
  const head = Buffer.alloc(9);
  head[0] = flags | LONG;
  head.writeBigUInt64BE(BigInt(body.length), 1);
  return [head, body];
}

function property(name, value) {
  const size = Buffer.alloc(4);
  size.writeUInt32BE(value.length);
  return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), size, Buffer.from(value)]);
}

function address(endpoint) {
  const [, host, port] = /^tcp:\/\/(.+):(\d+)$/.exec(endpoint) ?? [];
  if (!port) throw new TypeError(`${endpoint} is no address; expected tcp://HOST:PORT`);
  return { host, port: Number(port) };
}

/** One connection: turns bytes into messages, and messages into bytes. */
class Connection {
  constructor(socket, type, on) {
    Object.assign(this, { socket, on, greeted: false, ready: false, parts: [], size: 0, frames: [], need: 64 });
    socket.setNoDelay(true);
    socket.on("data", (data) => this.receive(data));
    socket.on("error", () => {});
    socket.on("close", () => on.close());
    socket.write(GREETING);
    const body = Buffer.concat([Buffer.from("\x05READY"), property("Socket-Type", type), property("Identity", "")]);
    socket.write(Buffer.concat(frame(COMMAND, body)));
  }

  send(frames) {
    const bytes = frames.flatMap((body, at) => frame(at < frames.length - 1 ? MORE : 0, Buffer.from(body)));
    this.socket.write(Buffer.concat(bytes));
  }

  receive(data) { // a large frame comes in many parts, which are joined when the frame is complete
    this.parts.push(data);
    this.size += data.length;
    if (this.size < this.need) return;
    let bytes = this.parts.length > 1 ? Buffer.concat(this.parts) : data;
    for (;;) {
      const used = this.greeted ? this.take(bytes) : this.greet(bytes);
      if (!used) break;
      bytes = bytes.subarray(used);
    }
    [this.parts, this.size] = [bytes.length ? [bytes] : [], bytes.length];
  }

  greet(bytes) {
    if (bytes.length < 64) return 0;
    if (bytes[0] !== 0xff || bytes[10] < 3) { this.socket.destroy(); return 0; }
    [this.greeted, this.need] = [true, 2];
    return 64;
  }

  take(bytes) {
    this.need = 2;
    if (bytes.length < 2) return 0;
    const long = bytes[0] & LONG, head = long ? 9 : 2;
    if (bytes.length < head) { this.need = head; return 0; }
    const size = long ? Number(bytes.readBigUInt64BE(1)) : bytes[1];
    if (bytes.length < head + size) { this.need = head + size; return 0; }
    const body = Buffer.from(bytes.subarray(head, head + size));
    if (bytes[0] & COMMAND) this.command(body);
    else {
      this.frames.push(body);
      if (!(bytes[0] & MORE)) this.on.message(this.frames.splice(0));
    }
    return head + size;
  }

  command(body) {
    const name = body.toString("latin1", 1, 1 + body[0]);
    if (name === "READY" && !this.ready) { this.ready = true; this.on.ready(); }
    if (name === "PING") this.socket.write(Buffer.concat(frame(COMMAND, Buffer.concat([Buffer.from("\x04PONG"), body.subarray(7)]))));
  }
}

/** Connects to one endpoint, and connects again after each end. Messages wait while there is no connection. */
export class Dealer {
  constructor({ linger = 0, ready = () => {} } = {}) { Object.assign(this, { linger, greet: ready, waiting: [], arrived: [], wake: null, closed: false, connection: null }); }

  connect(endpoint) {
    this.endpoint = endpoint;
    this.dial();
  }

  dial() {
    if (this.closed) return;
    const again = () => { this.connection = null; setTimeout(() => this.dial(), RETRY); };
    const connection = new Connection(net.connect(address(this.endpoint)), "DEALER", {
      ready: () => { this.connection = connection; this.greet(); for (const frames of this.waiting.splice(0)) connection.send(frames); },
      message: (frames) => { this.arrived.push(frames); this.wake?.(); },
      close: again,
    });
    this.socket = connection.socket;
  }

  async send(frames) {
    if (this.connection) this.connection.send(frames);
    else this.waiting.push(frames);
  }

  close() {
    this.closed = true;
    this.wake?.();
    if (this.connection) setTimeout(() => this.socket.destroy(), this.linger).unref();
    else this.socket?.destroy();
    this.socket?.end();
  }

  async *[Symbol.asyncIterator]() {
    while (!this.closed) {
      if (this.arrived.length) yield this.arrived.shift();
      else await new Promise((resolve) => { this.wake = resolve; });
    }
  }
}

/** Binds an endpoint. Calls `message(id, frames)` for each message. `send(id, frames)` returns false without such a connection. */
export class Router {
  constructor(endpoint, { message, close = () => {} }) {
    this.connections = new Map();
    this.server = net.createServer((socket) => {
      const id = randomBytes(8).toString("hex");
      const connection = new Connection(socket, "ROUTER", {
        ready: () => this.connections.set(id, connection),
        message: (frames) => message(id, frames),
        close: () => { if (this.connections.delete(id)) close(id); },
      });
    });
    const { host, port } = address(endpoint);
    this.server.listen(port, host);
  }

  send(id, frames) {
    this.connections.get(id)?.send(frames);
    return this.connections.has(id);
  }
}
