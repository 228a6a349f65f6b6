/** A filter or a task as a command, a request, a call, or a link. */
import type { Query } from "../api.ts";
import { cliCall, pythonCall } from "../filters.ts";
import { t } from "../messages.ts";
import { api, attempt, notify } from "../session.ts";

export function CopyAs({ q }: { q: string }) {
  return <CopyMenu cli={cliCall(q)} path="/tasks" query={{ q }} python={pythonCall(q)} />;
}

/** path, query: of the request. */
export function CopyMenu({ cli, path, query, python }: { cli: string; path: string; query?: Query; python: string }) {
  const texts = {
    cli: () => cli,
    curl: () => `curl -H "Authorization: Bearer $ONTHEDOT_WEB_TOKEN" '${new URL(api.address(path, query), window.location.href).href.replaceAll("'", "%27")}'`,
    python: () => python,
    link: () => window.location.href,
  };
  return (
    <select class="copy-as" aria-label={t.copyAs} value="" onChange={(event) => {
      const name = event.currentTarget.value as keyof typeof texts;
      event.currentTarget.value = "";
      void attempt(async () => {
        await navigator.clipboard.writeText(texts[name]());
        notify("done", t.copied);
      });
    }}>
      <option value="" disabled hidden>{t.copyAs}</option>
      {(Object.keys(texts) as (keyof typeof texts)[]).map((name) => <option key={name} value={name}>{t.copyNames[name]}</option>)}
    </select>
  );
}
