import { SignInForm } from "../components/sign-in.tsx";
import { router } from "../session.ts";

export function LoginPage() {
  return (
    <main class="login">
      <SignInForm onDone={() => window.location.replace(router.base)} />
    </main>
  );
}
