"use strict";
/// Runs redblue_plan.wasm, a WASI command, in a page: planner(module)(["plan", "--n", "64", ...]) gives its exit status,
/// what it printed, and its messages. Each call is a new instance: a command runs once.
function planner(module) {
  const OK = 0, BAD_DESCRIPTOR = 8, NOT_THERE = 52, ENCODER = new TextEncoder();
  class Exit { constructor(status) { this.status = status; } }
  return (words) => {
    const args = ["redblue", ...words].map((word) => ENCODER.encode(word + "\0")), printed = { 1: "", 2: "" };
    const decoders = { 1: new TextDecoder(), 2: new TextDecoder() };
    let memory = null;
    const number = (at, value) => new DataView(memory.buffer).setUint32(at, value, true);
    const host = {
      args_sizes_get(count, bytes) {
        number(count, args.length);
        number(bytes, args.reduce((sum, word) => sum + word.length, 0));
        return OK;
      },
      args_get(list, at) {
        args.forEach((word, i) => { number(list + 4 * i, at); new Uint8Array(memory.buffer).set(word, at); at += word.length; });
        return OK;
      },
      environ_sizes_get(count, bytes) { number(count, 0); number(bytes, 0); return OK; },
      environ_get: () => OK,
      fd_prestat_get: () => BAD_DESCRIPTOR,  // no folder is open
      fd_fdstat_get(descriptor, status) {
        new Uint8Array(memory.buffer).fill(0, status, status + 24);
        return descriptor < 3 ? OK : BAD_DESCRIPTOR;
      },
      fd_write(descriptor, pieces, count, written) {
        const view = new DataView(memory.buffer);
        let bytes = 0;
        for (let i = 0; i < count; ++i) {
          const at = view.getUint32(pieces + 8 * i, true), size = view.getUint32(pieces + 8 * i + 4, true);
          printed[descriptor] += decoders[descriptor].decode(new Uint8Array(memory.buffer, at, size), { stream: true });
          bytes += size;
        }
        number(written, bytes);
        return OK;
      },
      proc_exit(status) { throw new Exit(status); },
    };
    const imports = {};
    for (const { module: from, name } of WebAssembly.Module.imports(module))
      (imports[from] ||= {})[name] = host[name] || (() => NOT_THERE);
    const instance = new WebAssembly.Instance(module, imports);
    memory = instance.exports.memory;
    let status = 0;
    try {
      instance.exports._start();
    } catch (e) {
      if (!(e instanceof Exit)) throw e;
      status = e.status;
    }
    return { status, output: printed[1], messages: printed[2] };
  };
}

/// The planner of a module that is given as base64 of its bytes, compressed by gzip. Compiled at once: a browser that
/// compiles lazily takes some 0.1 s, and Chromium allows modules of up to 8 MB here.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const whole = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  return planner(new WebAssembly.Module(whole));
}
