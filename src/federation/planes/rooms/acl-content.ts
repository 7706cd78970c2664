// Two ACLs compared by what they mean, and an ACL as the journal keeps it.
import type { FoundAcl, ServerAcl } from "./acl.ts";

/** What a found ACL says, with nothing but names in it, sorted. An absent `allow` admits nobody. */
export function aclNames(acl: FoundAcl): { allow: string[]; deny: string[]; allow_ip_literals: boolean } {
  return {
    allow: sortedNames(acl.allow),
    deny: sortedNames(acl.deny),
    allow_ip_literals: acl.allow_ip_literals !== false,
  };
}

/** Whether both admit the same servers by the same names; their order does not matter. */
export function isSameAcl(found: FoundAcl | undefined, desired: ServerAcl): boolean {
  if (found === undefined) return false;
  return JSON.stringify(aclNames(found)) === JSON.stringify(aclNames(desired));
}

function sortedNames(list: unknown): string[] {
  const names = Array.isArray(list) ? list.filter((name): name is string => typeof name === "string") : [];
  return [...new Set(names)].sort();
}
