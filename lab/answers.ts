// Whether a program answers as it does when it is well.

/** A resource, and the status that shows the program at work. */
export interface Sign {
  readonly url: string;
  readonly status: number;
}

/** @param timeoutMs after which silence counts as no */
export async function answers(sign: Sign, timeoutMs: number): Promise<boolean> {
  try {
    const response = await fetch(sign.url, { signal: AbortSignal.timeout(timeoutMs) });
    await response.body?.cancel();
    return response.status === sign.status;
  } catch {
    return false;
  }
}
