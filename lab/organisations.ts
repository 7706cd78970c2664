// The organisations of the lab, as data. Org A and org B are complete and alike, each a partner of the other;
// org C runs a homeserver and holds credentials that no organisation admits; org D is a neutral witness, a
// homeserver that A and B both admit and that has no other part in their dealings. It runs only on request.
export const ORGANISATION_NAMES = ["org-a", "org-b", "org-c", "org-d"] as const;
export type OrganisationName = (typeof ORGANISATION_NAMES)[number];

/** The organisations that run everything: bridge, gateway, issuer and an agent. */
export const COMPLETE_ORGANISATIONS = ["org-a", "org-b"] as const;
export type CompleteOrganisation = (typeof COMPLETE_ORGANISATIONS)[number];

/** Shows what a third server still relays between A and B. */
export const WITNESS = "org-d";

/** The organisations that A and B admit, themselves included. */
export const ADMITTED_ORGANISATIONS: readonly OrganisationName[] = [...COMPLETE_ORGANISATIONS, WITNESS];

export const AGENT = "docs-qa";

/** Users of every organisation. The first asks questions, the last administers the homeserver. */
export const USERS = [
  { localpart: "alice", displayName: "Alice", admin: false },
  { localpart: "bob", displayName: "Bob", admin: false },
  { localpart: "operator", displayName: "Operator", admin: true },
] as const;

export interface OrganisationTraits {
  /** For people, in summaries and in the agent's card. */
  readonly title: string;
  readonly agentTitle: string;
  readonly agentDescription: string;
  /** A question its agent can answer, asked by the proof. */
  readonly sampleQuestion: string;
}

export const TRAITS: Readonly<Record<CompleteOrganisation, OrganisationTraits>> = {
  "org-a": {
    title: "Organisation A",
    agentTitle: "Drawbridge documentation",
    agentDescription:
      "Answers questions about Drawbridge from its own documentation, naming file and heading.",
    sampleQuestion: "How do I connect the bridge to my own Synapse?",
  },
  "org-b": {
    title: "Organisation B",
    agentTitle: "Harbour handbook",
    agentDescription:
      "Answers questions about the harbour at Eastquay from its handbook, naming file and heading.",
    sampleQuestion: "Which radio channel do I call for a bridge opening?",
  },
};

/** The organisation that is a complete one's partner. */
export function partnerOf(organisation: CompleteOrganisation): CompleteOrganisation {
  return organisation === "org-a" ? "org-b" : "org-a";
}

export function isComplete(organisation: OrganisationName): organisation is CompleteOrganisation {
  return (COMPLETE_ORGANISATIONS as readonly string[]).includes(organisation);
}

/** The organisations that run. */
export function organisationsWith(witness: boolean): readonly OrganisationName[] {
  return witness ? ORGANISATION_NAMES : ORGANISATION_NAMES.filter((name) => name !== WITNESS);
}

/** Parses `org-a`, or the short `a`, from a command line; undefined if it names none. */
export function parseOrganisation(text: string): OrganisationName | undefined {
  return ORGANISATION_NAMES.find((name) => name === text || name === `org-${text}`);
}

/** Host part of an organisation's homeserver name; `.test` is reserved (RFC 6761) and never resolves. */
export function hostOf(organisation: OrganisationName): string {
  return `${organisation}.test`;
}

/** OAuth client IDs. */
export const clientIds = {
  /** The client an organisation's bridge authenticates as, at its own issuer and at its partner's. */
  bridgeOf: (organisation: OrganisationName) => `${organisation}-bridge`,
  /** Also one of a later partnership, which has a number behind it. */
  isBridgeOf: (organisation: OrganisationName, azp: string) =>
    azp === `${organisation}-bridge` ||
    (azp.startsWith(`${organisation}-bridge-`) &&
      /^[0-9]+$/.test(azp.slice(`${organisation}-bridge-`.length))),
  /** Known to the issuers of A and B since org C applied; no gateway ever admitted it. */
  applicant: "org-c-applicant",
} as const;

/** The unit of the database server, which all organisations share. */
export const POSTGRES = "postgres";
/** The programs of a complete organisation; the others have a homeserver alone. */
export const PROGRAMS = ["homeserver", "issuer", "agent", "gateway", "bridge", "reconciler"] as const;
export type ProgramName = (typeof PROGRAMS)[number];

/** The supervisor's name of an organisation's program, such as `org-a/bridge`. */
export function unitName(organisation: OrganisationName, program: ProgramName): string {
  return `${organisation}/${program}`;
}
