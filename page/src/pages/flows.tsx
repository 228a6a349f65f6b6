import type { FlowRow } from "../api-flows.ts";
import type { Rows } from "../api.ts";
import { Empty, Loaded } from "../components/empty.tsx";
import { Share, StateTabs, WholeState } from "../components/flow-parts.tsx";
import { PageLink } from "../components/link.tsx";
import { Ago } from "../components/time.tsx";
import { count, duration, parseTime, shortId } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { useRowKeys } from "../row-keys.ts";
import { router } from "../session.ts";
import { useView } from "../view.ts";

const FEW = 50;
const MANY = 200;

export function FlowsPage() {
  const { query } = router.location.value;
  const state = query.get("state") ?? "";
  const limit = query.get("limit") === String(MANY) ? MANY : FEW;
  const { data, error } = useView<Rows<FlowRow>>("/flows", { state, limit }, { watch: "watch=overview", on: ["counts"], pause: 1500 });
  const rows = data.value?.items ?? [];
  const current = useRowKeys(rows.map(({ id }) => pathOf("flows", id)));
  return (
    <div class="stack">
      <header class="page-head"><h1>{t.pages.flows}</h1></header>
      <StateTabs page="flows" state={state} />
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (items.length === 0 ? <NoFlows state={state} /> : (
          <section class="card">
            <Table rows={items} current={current} />
            {items.length === FEW && limit === FEW && (
              <div class="pages"><span class="hint">{t.newest(FEW)}</span><PageLink class="button" to={pathOf("flows", "", { state, limit: String(MANY) })}>{t.showMore}</PageLink></div>
            )}
          </section>
        ))}
      </Loaded>
    </div>
  );
}

function NoFlows({ state }: { state: string }) {
  if (state !== "") return <Empty icon="search" title={t.noFlowInState} />;
  return <Empty icon="flows" title={t.empty.flows} text={t.empty.flowsText} code={t.empty.flowsCode} />;
}

function Table({ rows, current }: { rows: readonly FlowRow[]; current: number }) {
  return (
    <table class="rows cards">
      <thead>
        <tr>
          <th class="state-column">{t.columns.state}</th><th>{t.columns.flow}</th><th class="share-column">{t.columns.progress}</th>
          <th class="number">{t.columns.failed}</th><th class="time">{t.columns.began}</th><th class="number">{t.columns.duration}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, i) => (
          <tr key={row.id} class={i === current ? "current" : ""}>
            <td class="state-column"><WholeState state={row.state} ended={row.ended_at !== null} /></td>
            <td class="main"><PageLink to={pathOf("flows", row.id)}>{row.label || row.source}</PageLink> <code class="hint">{shortId(row.id)}</code></td>
            <td class="share-column"><Share {...row} /></td>
            <td class={`number ${row.failed > 0 ? "bad" : "zero"}`} data-name={t.columns.failed}>{count(row.failed)}</td>
            <td class="time"><Ago at={row.started_at} /></td>
            <td class="number" data-name={t.columns.duration}>{took(row)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function took({ started_at: from, ended_at: to }: FlowRow) {
  const begin = parseTime(from);
  const end = parseTime(to);
  return begin === null || end === null ? <span class="none">{t.none}</span> : duration(end - begin);
}
