// The JSON Schemas in docs/reference/schemas, made from the very schemas that the programs parse with.
// Invariants: the published form is that of the input, as an operator writes it, so that defaults are optional; every
// file in that folder, its index included, is made here.
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import * as z from "zod";
import { DocsQaConfigFile } from "../examples/docs-qa/config.ts";
import { FedStatus } from "../lab/status/schema.ts";
import { AgentCardAudit, DelegationAudit, EncryptedIntakeAudit } from "../src/bridge/audit/records.ts";
import { BridgeConfigFile } from "../src/bridge/config.ts";
import { AbuseReport } from "../src/federation/abuse/report.ts";
import { FederationConfigFile } from "../src/federation/config.ts";
import { EvidencePack } from "../src/federation/evidence/pack.ts";
import { PurgePlan } from "../src/federation/offboarding/duties/purge-plan.ts";
import { PrivateRecord } from "../src/federation/offboarding/private-record/schema.ts";
import { RoomsIntent } from "../src/federation/planes/rooms/render.ts";
import { ProbeFile } from "../src/federation/probes/config.ts";
import { NewIdentities } from "../src/federation/readmission/readmission.ts";
import { ContainmentRecord, ReadmissionRecord } from "../src/federation/registry/committed-records.ts";
import { Organisation } from "../src/federation/registry/organisation.ts";
import { Partner } from "../src/federation/registry/partner.ts";
import { DriftRecord } from "../src/federation/state/plane-records.ts";
import { GatewayConfigFile } from "../src/gateway/config.ts";
import { IssuerConfigFile } from "../src/issuer/config.ts";
import { EvidenceItem } from "../src/records/format/evidence-item.ts";
import {
  CompletionPredicate,
  ExchangeFile,
  RecordFile,
  StagePredicate,
} from "../src/records/format/statements.ts";
import { TrustFile } from "../src/records/format/trust.ts";
import { AgentsFile } from "../src/rendered-files/agents-file.ts";
import { PolicyFile } from "../src/rendered-files/border-policy.ts";
import { GatewayState, InvocationFile, PublicationFile } from "../src/rendered-files/gateway-files.ts";
import { ClientsFile } from "../src/rendered-files/issuer-clients.ts";
import { ROOT } from "./run-program.ts";

interface PublishedSchema {
  /** The file is docs/reference/schemas/NAME.schema.json. */
  readonly name: string;
  readonly title: string;
  readonly schema: z.ZodType;
}

/** YAML that people write, or that is rendered from it: names in kebab-case, members in camelCase. */
const CONFIGURATION: readonly PublishedSchema[] = [
  { name: "bridge", title: "The bridge's configuration", schema: BridgeConfigFile },
  { name: "bridge-agents", title: "The bridge's agents.yaml", schema: AgentsFile },
  {
    name: "federation",
    title: "federation.yaml: where the parts of one deployment stand",
    schema: FederationConfigFile,
  },
  { name: "registry-organisation", title: "registry/organisation.yaml", schema: Organisation },
  { name: "registry-partner", title: "registry/partners/NAME.yaml", schema: Partner },
  { name: "offboarding-private-record", title: "The private record of a removal", schema: PrivateRecord },
  {
    name: "readmission-identities",
    title: "What a partner that is re-admitted brings anew",
    schema: NewIdentities,
  },
  { name: "probe", title: "probe.yaml: who looks at an organisation from outside", schema: ProbeFile },
  { name: "records-trust", title: "Whose keys a record is verified with", schema: TrustFile },
  { name: "gateway", title: "The gateway's configuration", schema: GatewayConfigFile },
  {
    name: "gateway-publication",
    title: "The gateway's publication.yaml: which cards are public",
    schema: PublicationFile,
  },
  {
    name: "gateway-invocation",
    title: "The gateway's invocation.yaml: who may call which agent",
    schema: InvocationFile,
  },
  { name: "issuer", title: "The issuer's configuration", schema: IssuerConfigFile },
  { name: "issuer-clients", title: "The issuer's declared clients", schema: ClientsFile },
  { name: "docs-qa", title: "The sample agent's configuration", schema: DocsQaConfigFile },
];

/** JSON that programs write for one another: names in kebab-case. */
const EXCHANGED: readonly PublishedSchema[] = [
  { name: "border-policy", title: "The border module's policy.json", schema: PolicyFile },
  { name: "rooms-intent", title: "What the rooms plane must bring about", schema: RoomsIntent },
  { name: "gateway-state", title: "What a gateway has in force", schema: GatewayState },
  { name: "fed-status", title: "What fed:status --json says of a lab", schema: FedStatus },
];

/** Records, which are emitted, signed or stored: names are their schema IDs, members in snake_case. */
const RECORDS: readonly PublishedSchema[] = [
  { name: "svc.agent_card.v1", title: "An audit line about an Agent Card", schema: AgentCardAudit },
  { name: "svc.delegation.v1", title: "An audit line about a delegation", schema: DelegationAudit },
  {
    name: "svc.encrypted_intake.v1",
    title: "An audit line about an encrypted event that expired unread",
    schema: EncryptedIntakeAudit,
  },
  { name: "svc.federation.abuse-report.v1", title: "A report of abuse", schema: AbuseReport },
  {
    name: "svc.federation.containment.v1",
    title: "The record of a containment or of its restore",
    schema: ContainmentRecord,
  },
  { name: "svc.federation.drift.v1", title: "What was changed by hand and put right", schema: DriftRecord },
  { name: "svc.federation.evidence.v1", title: "An evidence pack about a partner", schema: EvidencePack },
  {
    name: "svc.federation.evidence_item.v1",
    title: "One observation about a plane and a partner",
    schema: EvidenceItem,
  },
  {
    name: "svc.federation.offboarding_completion.v1",
    title: "What both organisations state at the end of a removal",
    schema: CompletionPredicate,
  },
  {
    name: "svc.federation.offboarding_exchange.v1",
    title: "Statements that pass from one organisation to the other",
    schema: ExchangeFile,
  },
  {
    name: "svc.federation.offboarding_record.v1",
    title: "The whole record of a removal",
    schema: RecordFile,
  },
  {
    name: "svc.federation.offboarding_stage.v1",
    title: "What an organisation states about one stage of a removal",
    schema: StagePredicate,
  },
  { name: "svc.federation.purge_plan.v1", title: "What a purge would delete", schema: PurgePlan },
  {
    name: "svc.federation.readmission.v1",
    title: "The record of a partner's re-admission, at its beginning and its end",
    schema: ReadmissionRecord,
  },
];

const FOLDER = join(ROOT, "docs", "reference", "schemas");

/** Every published file's name and content. */
export function renderSchemas(): ReadonlyMap<string, string> {
  const schemas = [...CONFIGURATION, ...EXCHANGED, ...RECORDS].map(({ name, title, schema }) => {
    // What JSON Schema cannot say, such as the grammar of a Matrix ID, is left to the program's own check.
    const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
    return [`${name}.schema.json`, `${JSON.stringify({ title, ...json }, null, 2)}\n`] as const;
  });
  return new Map([...schemas, ["README.md", renderIndex()]]);
}

function renderIndex(): string {
  const rows = (schemas: readonly PublishedSchema[]) => [
    "| schema | describes |",
    "|---|---|",
    ...schemas.map(({ name, title }) => `| [${name}](${name}.schema.json) | ${title} |`),
  ];
  return `${[
    "# JSON Schemas",
    "",
    "Made from the schemas that the programs parse with, by `./task check --update`; `./task check` refuses a file that differs. A schema describes the input: a member with a default is optional. Every program refuses members that its schema does not name.",
    "",
    "## Configuration",
    "",
    "YAML that people write, and YAML that federation control renders for a program. File names are in kebab-case, members in `camelCase`.",
    "",
    ...rows(CONFIGURATION),
    "",
    "## Files between programs",
    "",
    "JSON that one program writes for another. File names are in kebab-case. The border module's policy is read by Python and has members in `snake_case`; the others follow the configuration.",
    "",
    ...rows(EXCHANGED),
    "",
    "## Records",
    "",
    "JSON that is emitted, signed or stored as evidence: audit lines, evidence, statements and records. A schema is named by its ID, which stands in the record's `schema` member; members are in `snake_case`. DSSE (`payloadType`) and in-toto (`predicateType`) keep their own names.",
    "",
    ...rows(RECORDS),
  ].join("\n")}\n`;
}

/** Names of the files in docs/reference/schemas that differ from what the sources say; with `update`, none. */
export function compareSchemas(update: boolean): string[] {
  const wanted = renderSchemas();
  const found = new Map(
    globSync("*", { cwd: FOLDER }).map((file) => [basename(file), readFileSync(join(FOLDER, file), "utf8")]),
  );
  const differing = [...new Set([...wanted.keys(), ...found.keys()])].filter(
    (file) => wanted.get(file) !== found.get(file),
  );
  if (!update) return differing;
  mkdirSync(FOLDER, { recursive: true });
  for (const file of differing) {
    const content = wanted.get(file);
    if (content === undefined) rmSync(join(FOLDER, file));
    else writeFileSync(join(FOLDER, file), content);
  }
  return [];
}
