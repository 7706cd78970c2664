// Whether a process of this machine lives, whoever it belongs to.

/** A process ID may have passed to another program meanwhile. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
