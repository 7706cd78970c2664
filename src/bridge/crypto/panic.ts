// The library is compiled from Rust: a panic in it surfaces as a WebAssembly RuntimeError, and leaves the
// instance, which all machines of a thread share, in a state that nothing may be asked of any more.

export function isPanic(error: unknown): boolean {
  return error instanceof Error && error.name === "RuntimeError";
}
