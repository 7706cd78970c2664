// The programs of a lab: the command of each, what it is started after, and the probe of its readiness.
// Invariant: an organisation's programs are started as its operator would start them, from its own folder.
import { join } from "node:path";
import { HOMESERVER_FILES } from "../configuration/synapse-config.ts";
import { homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { CLONE } from "../layout.ts";
import {
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  isComplete,
  type OrganisationName,
  POSTGRES,
  type ProgramName,
  unitName,
} from "../organisations.ts";
import type { LabPrograms } from "../programs.ts";

export interface CommandLine {
  readonly command: string;
  readonly args: readonly string[];
  readonly directory: string;
  /** Added to the supervisor's own environment. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface UnitSpec {
  /** `postgres`, or organisation and program: `org-a/bridge`. */
  readonly name: string;
  /** Units that must be ready before this one is started. */
  readonly after: readonly string[];
  /** Files that must exist before it is started. */
  readonly needs?: readonly string[];
  readonly program: CommandLine | "postgres";
  /** Without a probe the program is ready as soon as it runs; the embedded PostgreSQL reports its own readiness. */
  readonly ready: ReadinessProbe | undefined;
  /** From SIGTERM to SIGKILL. */
  readonly stopTimeoutMs: number;
}

/** A resource, and the status that it has when the program is ready. */
export interface ReadinessProbe {
  readonly url: string;
  readonly status: number;
}

/** The Python package of the policy module that A and B run inside their homeservers. */
const BORDER_MODULE = join(CLONE, "border", "src");

/** How a program's readiness is observed; undefined for the reconciler, which serves nobody. */
export function readinessProbe(
  lab: Lab,
  organisation: OrganisationName,
  program: ProgramName,
): ReadinessProbe | undefined {
  const { clientUrl } = homeserverEndpoints(lab, organisation);
  if (program === "homeserver") return { url: `${clientUrl}/_matrix/client/versions`, status: 200 };
  if (program === "reconciler" || !isComplete(organisation)) return undefined;
  const { jwksUrl, agentCardUrl, nowhereUrl, healthUrl } = serviceEndpoints(lab, organisation);
  if (program === "gateway") return { url: nowhereUrl, status: 404 };
  return { url: { issuer: jwksUrl, agent: agentCardUrl, bridge: healthUrl }[program], status: 200 };
}

/** @param timeoutMs after which a program without an answer counts as not ready */
export async function isReady({ url, status }: ReadinessProbe, timeoutMs: number): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    await response.body?.cancel();
    return response.status === status;
  } catch {
    return false;
  }
}

export function unitsOf(lab: Lab, programs: LabPrograms): UnitSpec[] {
  return [
    { name: POSTGRES, after: [], program: "postgres", ready: undefined, stopTimeoutMs: 30_000 },
    ...lab.organisations.map((organisation) => homeserver(lab, organisation, programs)),
    ...COMPLETE_ORGANISATIONS.flatMap((organisation) => services(lab, organisation, programs)),
  ];
}

function homeserver(lab: Lab, organisation: OrganisationName, programs: LabPrograms): UnitSpec {
  const paths = lab.paths.organisation(organisation);
  return {
    name: unitName(organisation, "homeserver"),
    after: [POSTGRES],
    program: {
      command: programs.python,
      args: [
        ...["-m", "synapse.app.homeserver"],
        ...["--config-path", `${paths.homeserver}/${HOMESERVER_FILES.config}`],
        // A file that is read later overrides an earlier one.
        ...(isComplete(organisation) ? ["--config-path", paths.homeserverIncludes] : []),
      ],
      directory: paths.homeserver,
      ...(isComplete(organisation) ? { environment: { PYTHONPATH: BORDER_MODULE } } : {}),
    },
    ready: readinessProbe(lab, organisation, "homeserver"),
    stopTimeoutMs: 20_000,
  };
}

function services(lab: Lab, organisation: CompleteOrganisation, programs: LabPrograms): UnitSpec[] {
  const paths = lab.paths.organisation(organisation);
  const unit = (
    program: ProgramName,
    command: readonly string[],
    config: string,
    directory: string,
    after: readonly ProgramName[],
  ): UnitSpec => ({
    name: unitName(organisation, program),
    after: after.map((name) => unitName(organisation, name)),
    program: { command: programs.node, args: [...command, "--config", config], directory },
    ready: readinessProbe(lab, organisation, program),
    stopTimeoutMs: 30_000,
  });
  const { drawbridge } = programs;
  const agent = join(CLONE, "examples", "docs-qa", "main.ts");
  const reconcilerAfter = ["homeserver", "gateway", "bridge"] as const;
  return [
    unit("issuer", [drawbridge, "issuer"], paths.issuerConfig, paths.issuer, []),
    unit("agent", [agent], paths.agentConfig, paths.agent, []),
    // The gateway fetches the issuer's keys as it starts, and serves only then.
    unit("gateway", [drawbridge, "gateway"], paths.gatewayConfig, paths.gateway, ["issuer", "agent"]),
    unit("bridge", [drawbridge, "bridge"], paths.bridgeConfig, paths.bridge, ["homeserver"]),
    {
      ...unit(
        "reconciler",
        [drawbridge, "reconcile"],
        paths.federationConfig,
        paths.federation,
        reconcilerAfter,
      ),
      // It acts as the operator, who is registered once the homeserver runs.
      needs: [paths.operatorToken],
    },
  ];
}

/** Units that are started after `name` and so are to be stopped before it. */
export function dependantsOf(units: readonly UnitSpec[], name: string): UnitSpec[] {
  return units.filter((unit) => unit.after.includes(name));
}
