/** Answers of the HTTP API about flows, batches, waiting tasks and signals. */
import type { State } from "./api.ts";

export type StateCounts = Record<string, number>;

export interface FlowRow {
  id: string; source: string; label: string; state: State; done: number; failed: number; total: number;
  started_at: string; ended_at: string | null;
}

export interface FlowNode { id: number; source: string; count: number; states: StateCounts; uuid: string; remark: string }
export interface FlowLayer { nodes: number; total: number; done: number; failed: number; running: number }
export interface FlowFailureRow { uuid: string; source: string; state: State; error: string }
export interface FlowHandlerRow { kind: string; uuid: string; source: string; state: State; remark: string }

export interface FlowChildrenRow {
  source: string; count: number; states: StateCounts; uuid: string; remark: string; by: string | null;
}

export interface FlowDetail {
  flow: FlowRow; states: StateCounts; nodes: FlowNode[]; edges: [number, number][]; layers: FlowLayer[];
  waits: string; blocked_by: string[]; first_failures: FlowFailureRow[]; handlers: FlowHandlerRow[];
  children: FlowChildrenRow[];
}

/** The message `flow` of the stream. */
export interface FlowMessage { id: string; progress: { done: number; failed: number; total: number } }

export interface BatchRow {
  id: string; source: string; type: string; state: State; done: number; failed: number; total: number;
  items: number; count: number; started_at: string; ended_at: string | null; degraded: boolean;
  mode: "" | "frozen" | "degraded"; reason: string;
}

export interface PartRow {
  number: number; uuid: string; items: number; refused: Record<string, number>; error: string; ended_at: string | null;
  ms: number | null; worker: string | null;
}

export interface PartStateRow { index: number; uuid: string; state: State }

export interface BatchDetail {
  batch: BatchRow; parts: PartRow[]; waits: string; alive: number; first_at: string | null; eta: string | null;
  eta_error_ms: number | null; deadline: string | null; states: PartStateRow[]; refused: Record<string, number>;
  topped_up: number; retries: number; newest: string[];
}

export interface WaitingRow {
  uuid: string; short_id: string; source: string; label: string; signals: string[]; flow: string | null;
  needed: number; reached: number; since: string | null; until: string | null;
}

export interface AwaitedSignalRow { name: string; waiting: number; kept: number; oldest: string | null }
export interface WaitingList { items: WaitingRow[]; more: boolean; signals: AwaitedSignalRow[] }
export interface SignalRow { name: string; id: string; at: string; payload: unknown }
