"""Orders to a model in other languages: one rule each, about the same orders as in English."""

from __future__ import annotations

from chatbot.chat.rules.rule import Rule, form, phrase

LANGUAGES: tuple[Rule, ...] = (
    phrase(
        "override-de",
        r"(?:ignorieren?|vergiss|vergessen|missachten?|übergehen?|uebergehen?|verwirf|verwerfen) WORDS{0,3}?"
        r"(?:vorherigen?|bisherigen?|früheren?|vorigen?|obigen?|vorangegangenen?|deine|ihre|alle) WORDS{0,2}?"
        r"(?:system)?(?:anweisung(?:en)?|instruktionen|befehle|regeln|vorgaben|prompts?)",
        r"du bist (?:jetzt|nun|ab jetzt|ab sofort) (?:eine?|der|die) WORDS{0,2}?(?:bot|ki|assistent|hacker"
        r"|pirat|admin\w*)",
        r"du bist (?:jetzt|nun|ab jetzt|ab sofort) (?:frei von|nicht mehr an|ohne (?:regeln|grenzen))",
        r"ab (?:jetzt|sofort|nun) (?:musst|sollst|wirst|darfst|antwortest|gehorchst) du",
        r"von nun an (?:musst|sollst|wirst|darfst|antwortest|gehorchst) du",
        r"(?:ab (?:jetzt|sofort|nun)|von nun an) bist du eine? WORDS{0,2}?(?:bot|ki|assistent|hacker|pirat|admin\w*)",
        r"(?:verrate|zeige?|nenne|wiederhole|offenbare|gib) WORDS{0,4}?(?:system ?prompt|system ?anweisung(?:en)?)",
        r"(?:sage?n?|erzähle?|verrate) (?:sie |es |das ){0,2}de[mn] (?:be)?nutzern? WORDS{0,3}?nichts?",
    ),
    phrase(
        "override-fr",
        r"(?:ignore|oublie|néglige)[zrs]? WORDS{0,3}?(?:instructions?|consignes|directives|règles|ordres) "
        r"(?:précédente?s?|antérieure?s?|ci dessus|initiales|du système|système)",
        r"(?:ignore|oublie)[zr]? toutes (?:les|tes|vos) (?:instructions|consignes|règles)",
        r"(?:tu es|vous êtes) (?:maintenant|désormais) (?:une?|le) WORDS{0,2}?(?:bot|ia|assistante?|pirate|admin\w*)",
        r"(?:désormais|dorénavant|à partir de maintenant) (?:tu|vous) (?:dois|devez|répond\w*|obéi\w*)",
        r"(?:révèle|montre|affiche|répète|imprime|donne)[zr]? WORDS{0,4}?(?:prompt|invite|instructions|message)"
        r" (?:du )?système",
        r"n (?:en )?(?:informe|avertis|avertisse|alerte|prévene)[zr]? (?:pas|jamais) (?:l |les )?utilisateurs?",
        r"ne (?:le )?(?:dis|dites|parle|parlez|révèle|révélez|préviens|prévenez) (?:pas|rien|jamais) "
        r"(?:cela |ça )?(?:à l |aux |l )?utilisateurs?",
    ),
    phrase(
        "override-es",
        r"(?:ignor[ae]|ignorar|olvid[ae]|descarta|desobedece) WORDS{0,3}?(?:instrucciones|órdenes|indicaciones|reglas) "
        r"(?:anteriores|previas|precedentes|originales|del sistema|de arriba)",
        r"(?:ignor[ae]|olvid[ae]) todo lo (?:anterior|previo)",
        r"(?:ignor[ae]|olvid[ae]) todas (?:las|tus|sus) (?:instrucciones|órdenes|reglas)",
        r"(?:ahora eres|eres ahora) (?:un |una |el )?WORDS{0,1}?(?:bot|ia|asistente|pirata|admin\w*|hacker|libre de)",
        r"(?:a partir de ahora|desde ahora|de ahora en adelante) (?:tú |usted )?(?:debes|debe|deberás|tienes"
        r" que|responde\w*)",
        r"(?:revela|muestra|imprime|repite|dime|escribe) WORDS{0,4}?(?:prompt|mensaje|instrucciones) (?:del |de"
        r" )?sistema",
        r"no (?:se |lo |le |les ){0,2}(?:digas|diga|informes|cuentes|reveles|avises) WORDS{0,2}?(?:al|a los|a"
        r" la) usuari[oa]s?",
    ),
    phrase(
        "override-ru",
        r"(?:про)?(?:игнорируй|забудь|отмени)(?:те)? WORDS{0,2}?(?:предыдущ\w+|прежн\w+|прошл\w+|все"
        r"|системн\w+) WORDS{0,2}?"
        r"(?:инструкци\w+|указани\w+|правил\w*|команд\w*|приказ\w*)",
        r"(?:ты теперь|теперь ты|вы теперь|отныне ты) WORDS{0,1}?(?:бот|хакер|пират|ассистент|администратор"
        r"|свободен от)",
        r"(?:отныне|с этого момента) (?:ты|вы) (?:должен|должна|должны|обязан\w*|всегда|отвечаешь)",
        r"(?:покажи|раскрой|выведи|повтори|напечатай)(?:те)? WORDS{0,3}?системн\w+ (?:промпт\w*|инструкци\w+"
        r"|сообщени\w+)",
        r"не (?:говори|сообщай|рассказывай)(?:те)? (?:об этом )?пользовател\w+",
    ),
    phrase(
        "override-it-pt-pl",
        r"(?:ignora|ignore|ignori|dimentica|esqueça|esqueca|desconsidere) WORDS{0,3}?(?:istruzioni|instruções"
        r"|regole|regras|ordens) "
        r"(?:precedenti|anteriores|prévias|di sistema|do sistema)",
        r"(?:z?ignoruj|zapomnij) WORDS{0,2}?(?:poprzednie|wcześniejsze|powyższe) (?:instrukcje|polecenia|zasady)",
    ),
    form(
        "override-ja",
        r"(?:前|以前|上記|これまで)の?[^。\n]{0,6}(?:指示|命令|ルール|プロンプト)[^。\n]{0,8}(?:無視|忘れ)",
        r"ユーザーに[^。\n]{0,8}(?:言わないで|教えないで|伝えないで)",
    ),
    form(
        "override-zh",
        r"(?:忽略|无视|無視|忘记|忘記|不要理会|不理会)[^。\n]{0,6}(?:之前|以前|先前|上面|以上|此前|前面|所有|全部)[^。\n]{0,6}"
        r"(?:指令|指示|提示|规则|規則|命令)",
        r"你现在是[^。\n]{0,12}(?:助手|机器人|黑客|海盗|管理员|模型|AI)",
        r"从现在(?:开始|起)[,、\s]{0,3}你?(?:必须|只能|要听|你?是一?[个名位])",
        r"(?:不要|别|切勿|不得)(?:把[^。\n]{0,8})?(?:告诉|告知|通知)用户",
        r"(?:显示|透露|泄露|输出|打印|告诉我|重复)[^。\n]{0,6}系统(?:提示|指令)",
    ),
)
