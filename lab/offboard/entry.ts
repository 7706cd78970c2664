// What an organisation's branch says of the other one: its entry in the registry.
import { parse } from "yaml";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { PLANE_NAMES } from "../../src/federation/planes/names.ts";
import { Partner } from "../../src/federation/registry/partner.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { BRANCH } from "../configuration/control-repository.ts";
import type { Lab } from "../lab.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";

/** @throws DrawbridgeError `repository_unusable`; `config_invalid` when there is no such entry */
export async function entryOf(lab: Lab, organisation: CompleteOrganisation): Promise<Partner> {
  const repository = await Repository.open(lab.paths.organisation(organisation).controlRepository, BRANCH);
  const file = `registry/partners/${partnerOf(organisation)}.yaml`;
  const files = await repository.read(await repository.requireHead(), [file]);
  const found = Partner.safeParse(parse(files.get(file) ?? ""));
  if (found.success) return found.data;
  throw new DrawbridgeError("config_invalid", `${organisation} has no valid ${file}`, {
    hint: "See drawbridge federation check.",
  });
}

/** Whether every plane is declared closed. */
export function isRemoved({ planes }: Partner): boolean {
  return PLANE_NAMES.every((plane) => planes[plane] === "closed");
}

/** The organisations that have removed the other. */
export async function removals(lab: Lab): Promise<readonly CompleteOrganisation[]> {
  const entries = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (at) => [at, await entryOf(lab, at)] as const),
  );
  return entries.filter(([, entry]) => isRemoved(entry)).map(([at]) => at);
}
