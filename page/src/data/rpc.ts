/** JSON-RPC 2.0 by POST to the origin of the page. */

/** An error that the server answered, or a request without an answer (code 0). */
export class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

/** Whether the server lacks the method. */
export function isMissing(error: unknown): boolean {
  return error instanceof RpcError && error.code === -32601;
}

/** A method and its parameters. */
export type Call = readonly [method: string, ...params: unknown[]];

/** What one call of a batch came to. */
export type Outcome = { value: unknown } | { error: RpcError };

interface Answer {
  id?: unknown;
  result?: unknown;
  error?: { code?: unknown; message?: unknown };
}

async function post(body: unknown, signal?: AbortSignal): Promise<unknown> {
  let response: Response;
  try {
    response = await fetch("/", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RpcError(0, "The server does not answer.");
  }
  if (!response.ok) throw new RpcError(0, `The server answers with HTTP status ${response.status}.`);
  return response.json();
}

function outcome(answer: Answer | undefined): Outcome {
  if (answer?.error) return { error: new RpcError(Number(answer.error.code), String(answer.error.message)) };
  if (answer === undefined || !("result" in answer)) return { error: new RpcError(0, "The server left a call without an answer.") };
  return { value: answer.result };
}

/** Calls one method. Rejects with an `RpcError`. */
export async function call<T>(what: Call, signal?: AbortSignal): Promise<T> {
  const [method, ...params] = what;
  const got = outcome((await post({ jsonrpc: "2.0", id: 1, method, params }, signal)) as Answer);
  if ("error" in got) throw got.error;
  return got.value as T;
}

/** Calls several methods in one request. Rejects only if the request as a whole has no answer. */
export async function batch(calls: readonly Call[], signal?: AbortSignal): Promise<Outcome[]> {
  if (calls.length === 0) return [];
  const answers = await post(
    calls.map(([method, ...params], id) => ({ jsonrpc: "2.0", id, method, params })),
    signal,
  );
  if (!Array.isArray(answers)) {
    const all = outcome(answers as Answer);
    return calls.map(() => ("error" in all ? all : { error: new RpcError(0, "The server does not answer batches.") }));
  }
  const byId = new Map(answers.map((answer: Answer) => [answer.id, answer]));
  return calls.map((_, id) => outcome(byId.get(id)));
}

/** The value of an outcome; undefined if it is an error. */
export function valueOf<T>(got: Outcome | undefined): T | undefined {
  return got && "value" in got ? (got.value as T) : undefined;
}
