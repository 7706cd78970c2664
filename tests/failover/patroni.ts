// A replicated PostgreSQL as an operator runs it: three servers under Patroni, which agree by etcd, with synchronous
// replication. `./task test:failover` installs the programs and says where they are.
// Invariants: loopback only; a process is signalled only when it is this cluster's own; everything ends with the test.
import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, chownSync, mkdirSync, openSync, readFileSync, readlinkSync, realpathSync } from "node:fs";
import { join } from "node:path";
import type { TestContext } from "node:test";
import pg from "pg";
import { freePort } from "../../lab/ports.ts";
import { unprivilegedUser } from "../../lab/postgres/unprivileged-user.ts";
import { systemClock, systemRandom } from "../../src/domain/clock.ts";
import { temporaryFolder, writeFile } from "../support/temporary.ts";

/** Where the task has put the programs: Patroni's and etcd's own, and the folder of PostgreSQL's. */
export const PATRONI_PROGRAMS = {
  patroni: "DRAWBRIDGE_TEST_PATRONI",
  etcd: "DRAWBRIDGE_TEST_ETCD",
  postgres: "DRAWBRIDGE_TEST_POSTGRES_PROGRAMS",
} as const;

const MEMBERS = 3;
const PATIENCE_MS = 180_000;
const POLL_MS = 20;
const ANSWER_MS_MAX = 700;

export interface Member {
  readonly name: string;
  readonly port: number;
  readonly rest: string;
  readonly data: string;
}

export interface PatroniCluster {
  readonly members: readonly Member[];
  /** Names all members, as `database.url` does. */
  url(database: string): string;
  /** Of one member, as the superuser. */
  memberUrl(member: Member, database?: string): string;
  /** Resolves to the primary once all members take part and one is a synchronous standby. */
  healthy(): Promise<Member>;
  /** Ends a member's PostgreSQL by SIGKILL. Its Patroni lives, and starts it again as a standby. */
  kill(member: Member): void;
  /** Resolves, after a kill, to when there was a new primary by Patroni, and when it committed a first write. */
  failover(killed: Member): Promise<{ readonly primaryAt: number; readonly writeAt: number }>;
  /** A statement on the primary, as the superuser. */
  administer(sql: string, database?: string): Promise<pg.QueryResult>;
  /** The folder that archived write-ahead log goes to. */
  readonly archive: string;
  /** A folder of the servers' user, for a backup. */
  readonly folder: string;
  /** Runs one of PostgreSQL's programs, or a program by its path, as the servers' user. */
  run(program: string, args: readonly string[]): Promise<string>;
}

const program = (variable: string): string => {
  const found = process.env[variable];
  if (found === undefined) throw new Error(`${variable} is not set: run ./task test:failover`);
  return found;
};

export async function startPatroni(t: Pick<TestContext, "after">): Promise<PatroniCluster> {
  const user = unprivilegedUser();
  const programs = program(PATRONI_PROGRAMS.postgres);
  const children: ChildProcess[] = [];
  const own = (path: string) => {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    if (user !== undefined) chownSync(path, user.uid, user.gid);
    return path;
  };
  let members: Member[] = [];
  const end = () => {
    for (const child of children) child.kill("SIGKILL");
    for (const member of members) {
      const pid = postmaster(member);
      if (pid !== undefined) process.kill(pid, "SIGQUIT");
    }
  };
  process.once("exit", end);
  // As the test runner ends a file that takes too long.
  const terminated = () => process.exit(1);
  process.once("SIGTERM", terminated);
  // Before the folder goes: what is registered first is done first.
  t.after(async () => {
    end();
    process.off("exit", end);
    process.off("SIGTERM", terminated);
    while (members.some((member) => postmaster(member) !== undefined)) await systemClock.sleep(POLL_MS);
  });
  const parent = temporaryFolder(t);
  chmodSync(parent, 0o711);
  const folder = own(join(parent, "cluster"));
  const archive = own(join(folder, "archive"));

  const launch = (name: string, path: string, args: readonly string[]) => {
    const log = openSync(join(parent, `${name}.log`), "a");
    const env = { PATH: `${programs}:/usr/bin:/bin`, HOME: folder, LC_ALL: "C.UTF-8" };
    children.push(spawn(path, args, { ...user, env, cwd: folder, stdio: ["ignore", log, log] }));
  };
  const [client, peer] = [await freePort(), await freePort()];
  launch("etcd", program(PATRONI_PROGRAMS.etcd), [
    ...["--name", "one", "--data-dir", join(folder, "etcd")],
    ...["--listen-client-urls", `http://127.0.0.1:${client}`],
    ...["--advertise-client-urls", `http://127.0.0.1:${client}`],
    ...["--listen-peer-urls", `http://127.0.0.1:${peer}`],
    ...["--initial-advertise-peer-urls", `http://127.0.0.1:${peer}`],
    ...["--initial-cluster", `one=http://127.0.0.1:${peer}`],
  ]);
  const password = systemRandom.bytes(16).toString("hex");
  for (let number = 1; number <= MEMBERS; number++) {
    const name = `m${number}`;
    members = [
      ...members,
      {
        name,
        port: await freePort(),
        rest: `127.0.0.1:${await freePort()}`,
        data: join(own(join(folder, name)), "data"),
      },
    ];
  }
  for (const member of members) {
    const file = join(folder, `${member.name}.yaml`);
    const settings = { member, etcd: `127.0.0.1:${client}`, programs, password, archive, folder };
    writeFile(file, JSON.stringify(configuration(settings)), 0o600);
    if (user !== undefined) chownSync(file, user.uid, user.gid);
    launch(member.name, program(PATRONI_PROGRAMS.patroni), [file]);
  }

  const memberUrl = ({ port }: Member, database = "postgres") =>
    `postgres://postgres:${password}@127.0.0.1:${port}/${database}`;
  const isPrimary = async ({ rest }: Member) =>
    await fetch(`http://${rest}/primary`, { signal: AbortSignal.timeout(ANSWER_MS_MAX) }).then(
      ({ ok }) => ok,
      () => false,
    );
  const pollUntil = async <Found>(what: string, read: () => Promise<Found | undefined>): Promise<Found> => {
    const until = systemClock.now() + PATIENCE_MS;
    while (systemClock.now() < until) {
      const found = await read().catch(() => undefined);
      if (found !== undefined) return found;
      await systemClock.sleep(POLL_MS);
    }
    throw new Error(`waited in vain: ${what}; logs are in ${parent}`);
  };
  const once = async (member: Member, sql: string, database?: string) => {
    const connection = new pg.Client({
      connectionString: memberUrl(member, database),
      connectionTimeoutMillis: ANSWER_MS_MAX,
      query_timeout: PATIENCE_MS,
    });
    connection.on("error", () => {});
    try {
      await connection.connect();
      return await connection.query(sql);
    } finally {
      void connection.end().catch(() => undefined);
    }
  };
  const healthy = () =>
    pollUntil("all members take part", async () => {
      const answers = await Promise.all(
        members.map(
          async ({ rest }) => (await fetch(`http://${rest}/cluster`)).json() as Promise<ClusterView>,
        ),
      );
      const [view] = answers;
      const leader = view?.members.find(({ role, state }) => role === "leader" && state === "running");
      const others = view?.members.filter(
        (one) => one.role !== "leader" && one.state === "streaming" && one.timeline === leader?.timeline,
      );
      if (others?.length !== MEMBERS - 1 || !others.some(({ role }) => role === "sync_standby"))
        return undefined;
      const primary = members.find(({ name }) => name === leader?.name);
      if (primary === undefined || !(await isPrimary(primary))) return undefined;
      await once(primary, "CREATE TABLE IF NOT EXISTS probe (at timestamptz)");
      return primary;
    });
  return {
    members,
    archive,
    folder,
    memberUrl,
    url: (database) =>
      `postgres://postgres:${password}@${members.map(({ port }) => `127.0.0.1:${port}`).join(",")}/${database}`,
    healthy,
    kill: (member) => {
      const pid = postmaster(member);
      if (pid === undefined) throw new Error(`${member.name} does not run`);
      process.kill(pid, "SIGKILL");
    },
    failover: async (killed) => {
      const before = postmaster(killed);
      // For a moment after the kill the Patroni of the old primary still answers for it.
      const isBack = () => ![undefined, before].includes(postmaster(killed));
      const alive = () => members.filter((one) => one !== killed || isBack());
      const primaryAt = pollUntil("a new primary", async () => {
        const found = await Promise.all(alive().map(isPrimary));
        return found.includes(true) ? Date.now() : undefined;
      });
      const writeAt = pollUntil("a write", async () => {
        await Promise.any(alive().map((member) => once(member, "INSERT INTO probe VALUES (now())")));
        return Date.now();
      });
      return { primaryAt: await primaryAt, writeAt: await writeAt };
    },
    administer: async (sql, database) => await once(await healthy(), sql, database),
    run: async (name, args) => {
      const child = spawn(name.startsWith("/") ? name : join(programs, name), args, {
        ...user,
        env: { PATH: `${programs}:/usr/bin:/bin`, HOME: folder, PGPASSWORD: password, LC_ALL: "C.UTF-8" },
        cwd: folder,
      });
      let output = "";
      for (const stream of [child.stdout, child.stderr]) {
        stream.on("data", (chunk: Buffer) => {
          output += chunk.toString("utf8");
        });
      }
      const code = await new Promise<number | null>((resolve, reject) => {
        child.once("error", reject);
        child.once("close", resolve);
      });
      if (code !== 0) throw new Error(`${name} ended with ${code}: ${output}`);
      return output;
    },
  };
}

interface ClusterView {
  readonly members: readonly {
    readonly name: string;
    readonly role: string;
    readonly state: string;
    readonly timeline?: number;
  }[];
}

/** The process of a member's PostgreSQL, if it runs. */
function postmaster({ data }: Member): number | undefined {
  try {
    const pid = Number(readFileSync(join(data, "postmaster.pid"), "utf8").split("\n")[0]);
    return readlinkSync(`/proc/${pid}/cwd`) === realpathSync(data) ? pid : undefined;
  } catch {
    return undefined;
  }
}

/** What docs/operating/replicated-database.md advises, with the shortest times that Patroni allows. */
function configuration(of: {
  member: Member;
  etcd: string;
  programs: string;
  password: string;
  archive: string;
  folder: string;
}) {
  const { member, etcd, programs, password, archive, folder } = of;
  return {
    scope: "drawbridge",
    name: member.name,
    restapi: { listen: member.rest, connect_address: member.rest },
    etcd3: { host: etcd },
    bootstrap: {
      dcs: {
        ttl: 20,
        loop_wait: 2,
        retry_timeout: 3,
        primary_start_timeout: 0,
        synchronous_mode: true,
        synchronous_mode_strict: true,
        failsafe_mode: true,
        postgresql: {
          use_pg_rewind: true,
          parameters: {
            archive_mode: "on",
            archive_command: `test -f "${archive}/%f" && cmp -s "%p" "${archive}/%f" || cp "%p" "${archive}/%f"`,
            max_connections: 100,
            tcp_user_timeout: "3s",
            wal_keep_size: "256MB",
            wal_log_hints: "on",
            wal_receiver_timeout: "5s",
            wal_retrieve_retry_interval: "500ms",
            wal_sender_timeout: "5s",
          },
        },
      },
      initdb: [{ encoding: "UTF8" }, { locale: "C" }, "data-checksums"],
    },
    postgresql: {
      listen: `127.0.0.1:${member.port}`,
      connect_address: `127.0.0.1:${member.port}`,
      data_dir: member.data,
      bin_dir: programs,
      pgpass: join(folder, `${member.name}.pgpass`),
      authentication: {
        superuser: { username: "postgres", password },
        replication: { username: "replicator", password },
        rewind: { username: "rewinder", password },
      },
      pg_hba: [
        "local all all trust",
        "host replication replicator 127.0.0.1/32 scram-sha-256",
        "host replication postgres 127.0.0.1/32 scram-sha-256",
        "host all all 127.0.0.1/32 scram-sha-256",
      ],
      basebackup: { checkpoint: "fast" },
      parameters: { unix_socket_directories: folder },
    },
    watchdog: { mode: "off" },
  };
}
