/** The filter as a command, a request, a call, or a link. */
import { cliCall, pythonCall } from "../filters.ts";
import { t } from "../messages.ts";
import { api, attempt, notify } from "../session.ts";

export function CopyAs({ q }: { q: string }) {
  const texts = {
    cli: () => cliCall(q),
    curl: () => `curl -H "Authorization: Bearer $ONTHEDOT_WEB_TOKEN" '${new URL(api.address("/tasks", { q }), window.location.href).href.replaceAll("'", "%27")}'`,
    python: () => pythonCall(q),
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
