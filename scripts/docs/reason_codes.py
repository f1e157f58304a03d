"""Print the table of reason codes for docs/partition.md, from `aotlens.partition.rules`."""

from aotlens.partition.rules import Freedom, Reason

CHANGED_BY = {
    Freedom.FORCED: "nothing",
    Freedom.RULE: "an override",
    Freedom.CHOICE: "an override, another policy",
    Freedom.USER: "it is your word",
}


def main() -> None:
    print("| code | shown as | what can change it |\n|---|---|---|")
    for freedom in Freedom:
        for reason in Reason:
            if reason.freedom is freedom:
                print(f"| `{reason.value}` | {reason.text} | {CHANGED_BY[freedom]} |")


if __name__ == "__main__":
    main()
