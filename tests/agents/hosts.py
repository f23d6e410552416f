"""The coding agents: their settings for a model server on loopback, and their commands without a terminal."""

import json


class Host:
    """An agent. `name` is its name in `quack mcp install`, `program` its name in node_modules/.bin."""

    name = ""
    program = ""
    # Its name in `clientInfo`.
    client = ""
    # Tools that `quack mcp install --exclusive` turns off.
    own_tools = []

    def env(self, url):
        return {}

    def configure(self, home, url):
        """Writes the settings that a user of the agent has before quackd is added."""

    def config_files(self, home):
        return []

    def command(self, prompt):
        raise NotImplementedError

    def add(self, run, server):
        raise NotImplementedError


class ClaudeCode(Host):
    name = "claude-code"
    program = "claude"
    client = "claude-code"
    own_tools = ["Bash", "Edit", "Write"]

    def env(self, url):
        names = ["DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING"]
        names.append("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"} | {name: "1" for name in names}

    def config_files(self, home):
        return [home / ".claude.json"]

    def command(self, prompt):
        return ["claude", "-p", prompt, "--allowedTools", "mcp__quackd", "--model", "claude-sonnet-4-5"]

    def add(self, run, server):
        run.quick(["claude", "mcp", "add", "-s", "user", "quackd", "--", *server])


class Codex(Host):
    name = "codex"
    program = "codex"
    client = "codex-mcp-client"
    own_tools = ["exec_command", "write_stdin"]

    def configure(self, home, url):
        (home / ".codex").mkdir(exist_ok=True)
        (home / ".codex/config.toml").write_text(f"""\
# A provider on loopback
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"

[analytics]
enabled = false
""")

    def config_files(self, home):
        return [home / ".codex/config.toml"]

    def command(self, prompt):
        return ["codex", "exec", prompt]

    def add(self, run, server):
        run.quick(["codex", "mcp", "add", "quackd", "--", *server])


class Gemini(Host):
    name = "gemini"
    program = "gemini"
    client = "gemini-cli-mcp-client"
    own_tools = ["run_shell_command", "write_file", "replace"]

    def env(self, url):
        return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url}

    def configure(self, home, _url):
        (home / ".gemini").mkdir(exist_ok=True)
        settings = {
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
        }
        (home / ".gemini/settings.json").write_text(json.dumps(settings, indent=2))

    def config_files(self, home):
        return [home / ".gemini/settings.json"]

    def command(self, prompt):
        return ["gemini", "-p", prompt, "--skip-trust", "--approval-mode", "yolo", "-m", "gemini-2.5-flash"]

    def add(self, run, server):
        run.quick(["gemini", "mcp", "add", "-s", "user", "quackd", *server])


class Opencode(Host):
    name = "opencode"
    program = "opencode"
    client = "opencode"
    own_tools = ["bash", "edit", "write"]

    def env(self, _url):
        names = ["OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD"]
        return {name: "1" for name in names}

    def configure(self, home, url):
        (home / ".config/opencode").mkdir(parents=True, exist_ok=True)
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Scripted", "models": {"one": {"name": "One"}}}
        provider["options"] = {"baseURL": f"{url}/v1", "apiKey": "none"}
        config = {"$schema": "https://opencode.ai/config.json", "autoupdate": False, "share": "disabled"}
        config |= {"model": "scripted/one", "provider": {"scripted": provider}}
        self.config_files(home)[0].write_text(json.dumps(config, indent=2))

    def config_files(self, home):
        return [home / ".config/opencode/opencode.json"]

    def command(self, prompt):
        return ["opencode", "run", prompt]

    def add(self, run, server):
        path = self.config_files(run.home)[0]
        config = json.loads(path.read_text())
        config["mcp"] = {"quackd": {"type": "local", "command": server}}
        path.write_text(json.dumps(config, indent=2))


HOSTS = {host.name: host for host in (ClaudeCode(), Codex(), Gemini(), Opencode())}
