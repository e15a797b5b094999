{{- define "allostat.name" -}}
{{- if contains "allostat" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-allostat" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "allostat.selector" -}}
app.kubernetes.io/name: allostat
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "allostat.labels" -}}
{{ include "allostat.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* Rules of a file with links to the published docs. */ -}}
{{- define "allostat.rules" -}}
{{- $text := .text }}
{{- with .docsUrl }}{{ $text = $text | replace "\"{{ $externalLabels.allostat_docs }}docs/" (printf "\"%s/" .) }}{{ end }}
{{- ($text | fromYaml).groups | toYaml }}
{{- end }}
