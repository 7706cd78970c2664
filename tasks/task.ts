// What a task of `./task` is. One file a task: `fed:up` stands in tasks/fed-up.ts and exports `task`.
// Invariant: `name`, `summary`, `python: true` and `pythonTools: true` stand each on a line of their own, because `./task` reads
// them before any Node.js that could load this file is installed.

export interface Task {
  /** As typed after `./task`. */
  readonly name: string;
  /** One line, for the list of tasks. */
  readonly summary: string;
  /** What `./task` installs before the task runs, besides Node.js and the npm packages. */
  readonly needs: {
    /** The virtual environment `.venv` with requirements/lab.txt: Synapse and Envoy. */
    readonly python?: boolean;
    /** The same, and with it what checks and tests the border module: requirements/border-dev.txt. */
    readonly pythonTools?: boolean;
  };
  /** It answers `--help` itself. Of the others the summary is all there is to say. */
  readonly explainsItself?: true;
  /**
   * Does the work and resolves to the exit code.
   * @throws DrawbridgeError, which is printed with its hint.
   */
  run(args: readonly string[]): Promise<number>;
}
