// Public paths of a gateway that stand in each other's way: the answer would depend on the order of routes.
// They are said in two files, so neither file can see it by itself.
import type { InvocationFile } from "./invocation-file.ts";
import type { PublicationFile } from "./publication-file.ts";

/** Where a path is written. */
export interface PathPlace {
  readonly file: "publication" | "invocation";
  readonly agent: string;
  readonly key: "cardPath" | "invokePath";
}

export interface PathConflict {
  readonly place: PathPlace;
  readonly other: PathPlace;
  /** `same`: one path, two owners; `below`: `other` lies where HTTP+JSON is served by `place`. */
  readonly kind: "same" | "below";
}

interface Owned extends PathPlace {
  readonly path: string;
}

/** Every conflict between the public paths of both files; empty when each path has one owner. */
export function pathConflicts(
  { cards }: Pick<PublicationFile, "cards">,
  { agents }: Pick<InvocationFile, "agents">,
): PathConflict[] {
  const conflicts: PathConflict[] = [];
  const owners = new Map<string, Owned>();
  const all: Owned[] = [
    ...Object.entries(cards).map(
      ([agent, { cardPath: path }]): Owned => ({ file: "publication", agent, key: "cardPath", path }),
    ),
    ...Object.entries(agents).map(
      ([agent, { invokePath: path }]): Owned => ({ file: "invocation", agent, key: "invokePath", path }),
    ),
  ];
  for (const place of all) {
    const other = owners.get(place.path);
    if (other === undefined) owners.set(place.path, place);
    else conflicts.push({ place, other, kind: "same" });
  }
  for (const place of all) {
    if (place.key !== "invokePath" || agents[place.agent]?.httpJson !== true) continue;
    for (const other of all) {
      const isOwnCard = other.agent === place.agent && other.key === "cardPath";
      if (other.path.startsWith(`${place.path}/`) && !isOwnCard)
        conflicts.push({ place, other, kind: "below" });
    }
  }
  return conflicts;
}
