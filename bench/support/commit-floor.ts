// How often a database commits: what no program that commits once for each thing can exceed.
import { Client } from "pg";

const MEASURED_MS = 2_000;

/** Commits a second of one row each, on several connections. */
export async function commitFloor(url: string, connections: number): Promise<number> {
  const clients = Array.from({ length: connections }, () => new Client({ connectionString: url }));
  await Promise.all(clients.map((client) => client.connect()));
  await clients[0]?.query(
    "CREATE TABLE IF NOT EXISTS commit_floor (n bigint GENERATED ALWAYS AS IDENTITY, t text)",
  );
  const end = performance.now() + MEASURED_MS;
  let commits = 0;
  await Promise.all(
    clients.map(async (client) => {
      while (performance.now() < end) {
        await client.query({
          name: "commit",
          text: "INSERT INTO commit_floor (t) VALUES ($1)",
          values: ["one"],
        });
        commits += 1;
      }
    }),
  );
  await Promise.all(clients.map((client) => client.end()));
  return (commits * 1_000) / MEASURED_MS;
}
