// The two files that say whom a gateway admits, from one value that tests like to write.

import { stringify } from "yaml";
import type { z } from "zod";
import { type AccessRules, mergeAccessRules } from "../../src/gateway/merge-access-files.ts";
import {
  InvocationFile,
  type InvokedAgent,
  PublicationFile,
  type PublishedCard,
} from "../../src/rendered-files/gateway-files.ts";
import { parseYaml } from "../../src/runtime/load-yaml.ts";

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

/** @throws ConfigError as the gateway would */
export function testIntent(input: AdmissionInput): AccessRules {
  const { publication, invocation } = admissionFiles(input);
  const [cards, callers] = [stringify(publication), stringify(invocation)];
  return mergeAccessRules(
    {
      file: "publication.yaml",
      text: cards,
      value: parseYaml(PublicationFile, cards, "publication.yaml"),
    },
    { file: "invocation.yaml", text: callers, value: parseYaml(InvocationFile, callers, "invocation.yaml") },
  );
}
