import assert from "node:assert/strict";
import test from "node:test";
import type { BatchDetail, PartRow } from "../src/api-flows.ts";
import { arrivals, deadlineState, marksOf } from "../src/batch-times.ts";

const at = (ms: number) => new Date(1_700_000_000_000 + ms).toISOString();
const present = (ms: number) => 1_700_000_000_000 + ms;

function detail(times: { first?: number; ended?: number; eta?: number; deadline?: number; state?: string }): BatchDetail {
  const moment = (ms: number | undefined) => (ms === undefined ? null : at(ms));
  return {
    batch: { started_at: at(0), ended_at: moment(times.ended), state: times.state ?? "succeeded" },
    first_at: moment(times.first), eta: moment(times.eta), deadline: moment(times.deadline),
  } as unknown as BatchDetail;
}

test("marks of a batch that runs are in the order of their times, and the last one ends the line", () => {
  const marks = marksOf(detail({ first: 900, eta: 3800, deadline: 5000 }), present(3100));
  assert.deepEqual(marks.map(({ kind, ms }) => [kind, ms]), [["first", 900], ["now", 3100], ["eta", 3800], ["deadline", 5000]]);
  assert.deepEqual(marks.map(({ share }) => share), [0.18, 0.62, 0.76, 1]);
});

test("a batch that has ended has its end instead of the present", () => {
  assert.deepEqual(marksOf(detail({ ended: 400 }), present(9999)), [{ kind: "ended", ms: 400, share: 1 }]);
});

test("arrivals are items per second, and those at the very end are in the last span", () => {
  const part = (ms: number | null, items: number) => ({ ended_at: ms === null ? null : at(ms), items }) as unknown as PartRow;
  const found = arrivals([part(0, 5), part(50, 5), part(4000, 20), part(null, 7)], present(0), present(4000));
  assert.equal(found.length, 40);
  assert.deepEqual([found[0], found[1], found[39]], [100, 0, 200]);
});

test("a deadline is kept, missed, on track or late, by the end or by its estimate", () => {
  const states = [
    deadlineState(detail({ eta: 1 }), present(1)),
    deadlineState(detail({ deadline: 5000 }), present(100)),
    deadlineState(detail({ deadline: 5000, eta: 4900 }), present(100)),
    deadlineState(detail({ deadline: 5000, eta: 5100 }), present(100)),
    deadlineState(detail({ deadline: 5000 }), present(5100)),
    deadlineState(detail({ deadline: 5000, ended: 4000 }), present(9000)),
    deadlineState(detail({ deadline: 5000, ended: 5001 }), present(9000)),
    deadlineState(detail({ deadline: 5000, ended: 4000, state: "cancelled" }), present(9000)),
  ];
  assert.deepEqual(states, [null, null, "onTrack", "late", "late", "kept", "missed", null]);
});
