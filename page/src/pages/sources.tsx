import type { Rows, SourceRow } from "../api.ts";
import { Empty, Loaded } from "../components/empty.tsx";
import { SourceTable } from "../components/source-table.tsx";
import { count } from "../format.ts";
import { useListKeys } from "../list-keys.ts";
import { t } from "../messages.ts";
import { useView } from "../view.ts";

export function SourcesPage() {
  const { data, error, reload } = useView<Rows<SourceRow>>("/sources", {}, {
    watch: "watch=overview", on: ["counts", "rates", "transitions", "invalidate"], invalidatedBy: ["sources", "limits", "schedules"], pause: 1000, every: 5000,
  });
  useListKeys();
  return (
    <div class="stack">
      <header class="page-head"><h1>{t.pages.sources}</h1><span class="hint">{data.value && count(data.value.items.length)}</span></header>
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (items.length === 0
          ? <Empty icon="sources" title={t.empty.app} text={t.empty.appText} code={t.empty.appCode} />
          : <section class="card"><SourceTable rows={items} onDone={() => reload(true)} /></section>)}
      </Loaded>
    </div>
  );
}
