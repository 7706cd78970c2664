// The two files that say whom a gateway admits, from one value that tests like to write.
import type { z } from "zod";
import type {
  InvocationFile,
  InvokedAgent,
  PublicationFile,
  PublishedCard,
} from "../../src/rendered-files/gateway-files.ts";

/** An agent with its card and its callers; without `cardPath` its card is not public. */
export type AgentInput = Omit<z.input<typeof PublishedCard>, "cardPath"> & {
  readonly cardPath?: string;
} & z.input<typeof InvokedAgent>;

export interface AdmissionInput {
  readonly agents: Readonly<Record<string, AgentInput>>;
  readonly quotas: z.input<typeof InvocationFile>["quotas"];
}

export function admissionFiles({ agents, quotas }: AdmissionInput): {
  readonly publication: z.input<typeof PublicationFile>;
  readonly invocation: z.input<typeof InvocationFile>;
} {
  const all = Object.entries(agents);
  return {
    publication: {
      version: 1,
      cards: Object.fromEntries(
        all.flatMap(([name, { upstream, upstreamCardPath, cardPath }]) =>
          cardPath === undefined
            ? []
            : [[name, { upstream, cardPath, ...(upstreamCardPath && { upstreamCardPath }) }]],
        ),
      ),
    },
    invocation: {
      version: 1,
      agents: Object.fromEntries(
        all.map(([name, { cardPath: _, upstreamCardPath: __, ...invocation }]) => [name, invocation]),
      ),
      quotas,
    },
  };
}
