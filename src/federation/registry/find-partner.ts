// Which partner a name on the command line means: its server name, or its file's name. Compared exactly.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { PartnerEntry, Registry } from "./partner.ts";

const SUGGESTIONS_MAX = 3;

/** The entry of a server; undefined when the registry has none. */
export function partnerEntry({ partners }: Registry, serverName: string): PartnerEntry | undefined {
  return partners.find(({ partner }) => partner.serverName === serverName);
}

/**
 * @throws DrawbridgeError `usage` when it is the own server, nobody, or not one alone
 */
export function findPartner(registry: Registry, name: string): PartnerEntry {
  const matching = registry.partners.filter(
    (entry) => entry.name === name || entry.partner.serverName === name,
  );
  const [only, second] = matching;
  if (only !== undefined && second === undefined) return only;
  if (only !== undefined) {
    const names = matching.map((entry) => `${entry.name} (${entry.partner.serverName})`).join(", ");
    throw new DrawbridgeError("usage", `${name} names more than one partner: ${names}`, {
      hint: "Name the one that is meant by its other name; nothing was changed.",
    });
  }
  if (name === registry.organisation.serverName) {
    throw new DrawbridgeError("usage", `${name} is this organisation's own server`, {
      hint: "Name a partner; one's own server is never contained. Nothing was changed.",
    });
  }
  const close = closeNames(registry, name);
  throw new DrawbridgeError("usage", `no partner is called ${printable(name)}`, {
    hint:
      close.length > 0
        ? `Did you mean ${close.join(", or ")}? Nothing was changed.`
        : "Name it by its server name or by its file in registry/partners; nothing was changed.",
  });
}

/** The nearest names alone: somebody in a hurry takes the one that he is offered. */
function closeNames(registry: Registry, name: string): readonly string[] {
  const wanted = name.toLowerCase();
  const near = registry.partners
    .flatMap((entry) => [entry.name, entry.partner.serverName])
    .map((candidate) => ({ candidate, distance: nearness(wanted, candidate.toLowerCase()) }))
    .filter(({ distance }) => distance <= Math.max(2, Math.floor(name.length / 3)));
  const least = near.reduce((best, { distance }) => Math.min(best, distance), Number.POSITIVE_INFINITY);
  return near
    .filter(({ distance }) => distance === least)
    .sort((left, right) => (left.candidate < right.candidate ? -1 : 1))
    .slice(0, SUGGESTIONS_MAX)
    .map(({ candidate }) => candidate);
}

/** Edits between two names; a name that begins with the other is one edit away. */
function nearness(wanted: string, candidate: string): number {
  if (wanted.length > 2 && candidate.startsWith(wanted)) return 1;
  let row = Array.from({ length: candidate.length + 1 }, (_, index) => index);
  for (let i = 1; i <= wanted.length; i++) {
    const next = [i];
    for (let j = 1; j <= candidate.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (wanted[i - 1] === candidate[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[candidate.length] ?? 0;
}

/** As a terminal may show it. */
function printable(name: string): string {
  return name.replaceAll(/[^\x21-\x7e]/g, "?").slice(0, 255);
}
