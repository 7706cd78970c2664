// The issuer as plane 5 needs it, for either program: declared clients, enabled or not, with changes by hand undone.
// Invariants: clients are closed before any is opened or changed; a client that cannot be brought to its state
// is named with a reason and holds up no other; nothing here reveals a secret.
import type { ClientsFile } from "../../../rendered-files/issuer-clients.ts";
import type { Drift } from "../plane.ts";

export type DeclaredClient = ClientsFile["clients"][number];

/** What one revision wants of the issuer. */
export interface IssuerIntent {
  /** Server name of the organisation that declares these clients. */
  readonly owner: string;
  readonly clients: readonly DeclaredClient[];
  /** The same as rendered: clients.yaml. */
  readonly text: string;
}

/** A client that is not in its declared state. */
export interface IssuerFailure {
  readonly clientId: string;
  /** `secret_unavailable`: its secret cannot be read here; `issuer_refused`: the issuer does not take it. */
  readonly reason: "secret_unavailable" | "issuer_refused";
  readonly hint: string;
}

export interface IssuerAdapter {
  /**
   * Brings the issuer to these clients and reads them back.
   * @throws DrawbridgeError `issuer_unavailable` when the issuer cannot be reached or denies us
   */
  apply(
    intent: IssuerIntent,
  ): Promise<{ readonly changed: boolean; readonly failures: readonly IssuerFailure[] }>;
  /**
   * The issuer's clients by ID, and whether each can have a token.
   * @throws DrawbridgeError `issuer_unavailable`
   */
  read(): Promise<ReadonlyMap<string, { readonly enabled: boolean }>>;
  /**
   * Kinds: `missing`, `extra`, `enabled` (against the registry), `disabled`, `edited`.
   * @throws DrawbridgeError `issuer_unavailable`
   */
  drift(intent: IssuerIntent): Promise<readonly Omit<Drift, "plane">[]>;
}
