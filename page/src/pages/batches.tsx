import type { BatchRow } from "../api-flows.ts";
import type { Rows } from "../api.ts";
import { Empty, Loaded } from "../components/empty.tsx";
import { Share, StateTabs, WholeState } from "../components/flow-parts.tsx";
import { PageLink } from "../components/link.tsx";
import { Badge } from "../components/state.tsx";
import { Ago } from "../components/time.tsx";
import { count, shortId } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { useRowKeys } from "../row-keys.ts";
import { router } from "../session.ts";
import { useView } from "../view.ts";

export function BatchesPage() {
  const state = router.location.value.query.get("state") ?? "";
  const { data, error } = useView<Rows<BatchRow>>("/batches", { state, limit: 50 }, {
    watch: "watch=overview", on: ["counts", "invalidate"], invalidatedBy: ["sources", "limits"], pause: 1500, load: 10,
  });
  const current = useRowKeys((data.value?.items ?? []).map(({ id }) => pathOf("batches", id)));
  return (
    <div class="stack">
      <header class="page-head"><h1>{t.pages.batches}</h1></header>
      <StateTabs page="batches" state={state} />
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (items.length === 0
          ? state === ""
            ? <Empty icon="batches" title={t.empty.batches} text={t.empty.batchesText} code={t.empty.batchesCode} />
            : <Empty icon="search" title={t.noBatchInState} />
          : <section class="card"><Table rows={items} current={current} /></section>)}
      </Loaded>
    </div>
  );
}

function Table({ rows, current }: { rows: readonly BatchRow[]; current: number }) {
  return (
    <table class="rows cards">
      <thead>
        <tr>
          <th class="state-column">{t.columns.state}</th><th>{t.columns.batch}</th><th class="share-column">{t.columns.items}</th>
          <th class="number">{t.columns.parts}</th><th class="number">{t.columns.failed}</th><th class="time">{t.columns.began}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, i) => (
          <tr key={row.id} class={i === current ? "current" : ""}>
            <td class="state-column"><WholeState state={row.state} ended={row.ended_at !== null} /></td>
            <td class="main">
              <PageLink to={pathOf("batches", row.id)}>{row.source}{row.type && ` · ${row.type}`}</PageLink> <code class="hint">{shortId(row.id)}</code>
              <BatchBadges row={row} />
            </td>
            <td class="share-column"><Share done={row.items} failed={0} total={row.count} name={t.columns.items} /></td>
            <td class="number" data-name={t.columns.parts}>{t.ofTotal(count(row.done), count(row.total))}</td>
            <td class={`number ${row.failed > 0 ? "bad" : "zero"}`} data-name={t.columns.failed}>{count(row.failed)}</td>
            <td class="time"><Ago at={row.started_at} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The mode of its task now, and whether this batch has one part only. */
export function BatchBadges({ row }: { row: BatchRow }) {
  if (row.mode === "" && !row.degraded) return null;
  return (
    <span class="marks">
      {row.mode !== "" && <Badge kind="warning">{t.modes[row.mode]}</Badge>}
      {row.degraded && row.mode !== "degraded" && <Badge kind="info">{t.ranDegraded}</Badge>}
    </span>
  );
}
